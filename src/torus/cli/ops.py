"""``torus ops``: which ATen ops the device runs, and how."""

from __future__ import annotations

import argparse
from pathlib import Path

from torus.cli import CommandError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the subcommand."""
    parser.add_argument("pattern", nargs="?", default="", help="only ops with this text in their name")
    parser.add_argument("--write", metavar="FILE", type=Path, help="write the whole table as Markdown")


def run(args: argparse.Namespace) -> int:
    """Print the table, or write it."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise CommandError(f"`torus ops` needs PyTorch: {error}") from error
    from torus import backend
    from torus.backend import coverage
    from torus.cli.texts import table

    backend.register()
    if args.write:
        args.write.write_text(coverage.page())
        return 0
    found = [row for row in coverage.rows() if args.pattern in row.name]
    if not found:
        raise CommandError(f"no op has {args.pattern!r} in its name")
    print(table([["op", "how", "why it falls back"], *([row.name, row.kind, row.reason] for row in found)]))
    return 0
