"""The matrix as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from torus.backend.device.amounts import show_bytes, show_seconds
from torus.explain.matrix.measure import Cell

_COLUMNS = ("model", "case", "mode", "result", "error", "CPU", "first", "second", "programs", "peak memory", "note")
_LEFT = {"model", "case", "mode", "result", "note"}


def row(cell: Cell) -> list[str]:
    """The texts of a cell, in the order of the columns."""
    return [
        cell.model,
        cell.case,
        cell.mode,
        cell.status,
        number(cell.error),
        _time(cell.cpu_seconds),
        _time(cell.first),
        _time(cell.seconds),
        "-" if cell.programs is None else str(cell.programs),
        "-" if cell.peak_memory is None else show_bytes(cell.peak_memory),
        note(cell),
    ]


def note(cell: Cell) -> str:
    """What there is to say, with the figures against float64 where they decided."""
    figures = (
        ""
        if cell.exact_error is None
        else f"from float64: {number(cell.exact_error)}, the CPU {number(cell.cpu_error)}"
    )
    fallbacks = f"{cell.fallbacks} ops on the CPU" if cell.fallbacks else ""
    return "; ".join(filter(None, (cell.note, figures, fallbacks)))


def text(cells: Iterable[Cell]) -> str:
    """A line for each cell, and what they come to."""
    found = list(cells)
    rows = [list(_COLUMNS), *map(row, found)]
    widths = [max(len(line[i]) for line in rows) for i in range(len(_COLUMNS))]

    def padded(line: list[str]) -> str:
        columns = zip(line, _COLUMNS, widths, strict=True)
        return "  ".join(t.ljust(w) if c in _LEFT else t.rjust(w) for t, c, w in columns).rstrip()

    return "\n".join([padded(rows[0]), "-" * min(160, sum(widths)), *map(padded, rows[1:]), "", summary(found)])


def summary(cells: list[Cell]) -> str:
    """One line for each mode: how many passed, and the worst error."""
    lines = []
    for mode in dict.fromkeys(cell.mode for cell in cells):
        mine = [cell for cell in cells if cell.mode == mode]
        counts = Counter(cell.status for cell in mine)
        ran = counts["ok"] + counts["miss"]
        worst = max((cell.error for cell in mine if cell.error is not None), default=None)
        skipped = f", {counts['skip']} not run" if counts["skip"] else ""
        lines.append(f"{mode}: {counts['ok']} of {ran} as right as the CPU{skipped}; worst error {number(worst)}")
    return "\n".join(lines)


def number(value: float | None) -> str:
    """An error as text."""
    return "-" if value is None else f"{value:.1e}"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else show_seconds(seconds)
