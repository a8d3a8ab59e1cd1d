"""``torus cache``: look at, check, copy and fill the cache of compiled programs."""

from __future__ import annotations

import argparse
import importlib

COMMANDS = {
    "list": "what is kept",
    "explain": "what a program was made from, and why programs were compiled",
    "verify": "check every entry",
    "prune": "remove entries",
    "copy": "copy what is missing from one cache to another",
    "warm": "run a script, or compile recorded programs, so that the cache has them",
}
"""Each is a module of this package."""

PLACES = """\
A cache is named by `disk` (the cache on the disk of this host), `shared` (the shared store of
TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT), a folder, or any URL that fsspec opens, such as s3://bucket/folder.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The subcommands."""
    chosen = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        module = importlib.import_module(f"{__name__}.{name}")
        text = f"{summary[0].upper()}{summary[1:]}."
        sub = chosen.add_parser(name, help=summary, description=text, epilog=PLACES)
        module.add_arguments(sub)
        sub.set_defaults(run_cache=module.run)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand that was chosen."""
    status: int = args.run_cache(args)
    return status
