"""``python -m torus.explain.matrix [--only REGEX] [--modes ...] [--models ...] [--json FILE] [--html FILE]``.

The exit status is 0 when every cell that runs on the CPU is as right as there, 1 when one is not, 2 when there is none.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cells that are asked for, print and write them."""
    args = _parse(arguments)
    try:
        import captum
    except ImportError:
        print("the matrix needs captum: pip install 'torus[explain]'", file=sys.stderr)
        return 2
    from torus.explain.matrix import page, table
    from torus.explain.matrix.cases import all_cases
    from torus.explain.matrix.measure import cells

    chosen = [case for case in all_cases() if case.model in args.models and args.only.search(case.id)]
    started, found = time.perf_counter(), []
    for index, case in enumerate(chosen):
        _progress(index, len(chosen), case.id, args.quiet)
        found += cells(case, tuple(args.modes))
    _progress(len(chosen), len(chosen), "", args.quiet)
    if not found:
        print("nothing matches", file=sys.stderr)
        return 2
    print(table.text(found))
    report = _report([cell.to_dict() for cell in found], captum.__version__, time.perf_counter() - started)
    if args.json:
        args.json.write_text(json.dumps(report, indent=1))
    if args.html:
        args.html.write_text(page.page(found, report["versions"], report["seconds"]))
    return 1 if any(cell.status == "miss" for cell in found) else 0


def _report(cells: list[dict[str, Any]], captum: str, seconds: float) -> dict[str, Any]:
    import torch

    import torus

    versions = {"torus": torus.__version__, "torch": torch.__version__, "captum": captum}
    return {"version": 1, "versions": versions, "seconds": seconds, "cells": cells}


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
