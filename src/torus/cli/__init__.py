"""The command `torus`. Each subcommand is a module, imported when it is asked for; its help needs no PyTorch."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

COMMANDS = {
    "cache": ("torus.cli.cache", "look at, check, copy and fill the cache of compiled programs"),
    "explain": ("torus.cli.explain", "say which words, pixels or columns made a model say what it says"),
    "explain bench": ("torus.cli.explain.bench", "measure an attribution on the CPU and in each mode of the device"),
    "plan": ("torus.cli.plan", "say whether a model fits a TPU that is not here, and how fast it could be"),
    "ops": ("torus.cli.ops", "list the operators and how the device runs them"),
}
"""One or two words to (module, help). The module has ``add_arguments(parser)`` and ``run(args) -> exit status``."""


class CommandError(Exception):
    """A mistake of the user, or something that is not as it must be; the text says which and what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, or those of the process; the exit status, 2 for errors."""
    from torus.runtime.cache_errors import Unusable

    try:
        args = _parse(list(sys.argv[1:] if arguments is None else arguments))
        status: int = args.run(args)
        sys.stdout.flush()
        return status
    except (CommandError, Unusable, OSError) as error:
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the end of Python complains
            return 1
        print(f"torus: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="torus", description="Tools for the PyTorch device of torus.")
    chosen = parser.add_subparsers(metavar="COMMAND", required=True)
    if " ".join(arguments[:2]) in COMMANDS:
        arguments = [" ".join(arguments[:2]), *arguments[2:]]
    for name, (module, summary) in COMMANDS.items():
        sub = chosen.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if arguments[:1] == [name]:
            command = importlib.import_module(module)
            command.add_arguments(sub)
            sub.set_defaults(run=command.run)
    return parser.parse_args(arguments)
