"""``python -m torus.explain.matrix [--only REGEX] [--modes ...] [--models ...] [--json FILE] [--html FILE]``.

The exit status is 0 when every cell that runs on the CPU is as right as there, 1 when one is not, 2 when there is none.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torus.explain.matrix.measure import Cell


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cells that are asked for, print and write them."""
    args = _parse(arguments)
    if importlib.util.find_spec("captum") is None:
        print("the matrix needs captum: pip install 'torus[explain]'", file=sys.stderr)
        return 2
    from torus.explain.matrix import table
    from torus.explain.matrix.cases import all_cases
    from torus.explain.matrix.measure import cells

    chosen = [case for case in all_cases() if case.model in args.models and args.only.search(case.id)]
    found: list[Cell] = []
    for index, case in enumerate(chosen):
        _progress(index, len(chosen), case.id, args.quiet)
        found += cells(case, tuple(args.modes))
        _write(found, args)  # an interrupted run leaves what it has done
    _progress(len(chosen), len(chosen), "", args.quiet)
    if not found:
        print("nothing matches", file=sys.stderr)
        return 2
    print(table.text(found))
    return 1 if any(cell.status == "miss" for cell in found) else 0


def _write(cells: list[Cell], args: argparse.Namespace) -> None:
    import captum
    import torch

    import torus
    from torus.explain.matrix import page

    versions = {"torus": torus.__version__, "torch": torch.__version__, "captum": captum.__version__}
    for file in filter(None, (args.json, args.html)):
        file.parent.mkdir(parents=True, exist_ok=True)
    if args.json:
        report = {"version": 1, "versions": versions, "cells": [cell.to_dict() for cell in cells]}
        args.json.write_text(json.dumps(report, indent=1))
    if args.html:
        args.html.write_text(page.page(cells, versions))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    models, modes = ("mlp", "cnn", "lm"), ("strict", "fused", "compiled")
    parser = argparse.ArgumentParser(
        prog="python -m torus.explain.matrix", description="Captum's methods on the device against the CPU."
    )
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX", help="part of MODEL:CASE")
    parser.add_argument("--modes", type=_some(modes), default=modes, help="of " + ",".join(modes))
    parser.add_argument("--models", type=_some(models), default=models, help="of " + ",".join(models))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the cells here")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page here that needs nothing else")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    return parser.parse_args(arguments)


def _some(known: tuple[str, ...]) -> Any:
    def chosen(text: str) -> tuple[str, ...]:
        given = tuple(text.split(","))
        for name in given:
            if name not in known:
                raise argparse.ArgumentTypeError(f"there is no {name!r}; there are {', '.join(known)}")
        return given

    return chosen


def _progress(done: int, total: int, what: str, quiet: bool) -> None:
    """On a terminal one line that changes, elsewhere a line now and then."""
    if quiet:
        return
    if sys.stderr.isatty():
        end = "\r" if done < total else "\n"
        print(f"\x1b[2K{done}/{total} {what}", end=end, file=sys.stderr, flush=True)
    elif done % 10 == 0 or done == total:
        print(f"{done}/{total} {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
