"""Sizes, times and tables for people."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

_DURATIONS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def size(count: float) -> str:
    """Bytes as ``1.5 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def age(seconds: float | None) -> str:
    """A time span as ``5m``, ``3h`` or ``12d``; ``?`` for None."""
    if seconds is None:
        return "?"
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"


def duration(text: str) -> float:
    """Seconds in ``90s``, ``30m``, ``12h``, ``7d`` or ``2w``, for argparse."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip().lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time span; it accepts 90s, 30m, 12h, 7d or 2w")
    return float(match[1]) * _DURATIONS[match[2]]


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Lines of aligned columns, the ones in `right` to the right; the last is as long as it is."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if i in right else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths))
        ]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    return "\n".join(lines)


def plural(count: int, what: str, many: str | None = None) -> str:
    """``1 program``, ``2 programs``; `many` where that is not `what` with an s."""
    return f"{count} {what if count == 1 else many or what + 's'}"
