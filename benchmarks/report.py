"""Figures with their targets, and how they are shown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

UNITS = {"us": "{:.2f} us", "ms": "{:.1f} ms", "s": "{:.2f} s", "x": "{:.2f}x", "MB": "{:.2f} MB", "": "{:.3g}"}


@dataclass(frozen=True)
class Figure:
    """One measured number and what it has to reach.

    `unit` ``"x"`` marks a ratio, and `name` then says of what. `value` None: it could not be measured, and `note` says
    why. `limit` None: no target; else the most allowed, or the least with `at_least`.
    """

    group: str
    name: str
    value: float | None
    unit: str = ""
    limit: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.value is None:
            return "not measured"
        if self.limit is None:
            return ""
        return "met" if (self.value >= self.limit if self.at_least else self.value <= self.limit) else "missed"

    @property
    def target(self) -> str:
        return "" if self.limit is None else f"{'>=' if self.at_least else '<='} {show(self.limit, self.unit, True)}"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.unit == "x", "target": self.target, "verdict": self.verdict}


@dataclass
class Result:
    """What a benchmark found: `figures`, a table of absolute medians side by side, and every sample."""

    figures: list[Figure]
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = field(default_factory=list)
    samples: Any = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "figures": [figure.as_dict() for figure in self.figures],
            "side_by_side": {"columns": list(self.columns), "rows": [list(row) for row in self.rows]},
            "samples": self.samples,
        }


def show(value: float | None, unit: str, plain: bool = False) -> str:
    """A number with its unit; `plain` drops zeros after the decimal point."""
    if value is None:
        return "-"
    text = UNITS[unit].format(value)
    number, space, rest = text.partition(" ") if " " in text else (text.rstrip("x"), "", "x" if unit == "x" else "")
    return (f"{value:g}" if plain else number) + space + rest


def median(group: str, name: str, values: Sequence[float], unit: str, limit: float | None = None) -> Figure:
    """The median of `values`."""
    return Figure(group, name, statistics.median(values), unit, limit, note=f"least {show(min(values), unit)}")


def ratio(
    group: str,
    name: str,
    above: Sequence[float],
    below: Sequence[float],
    limit: float | None = None,
    at_least: bool = False,
) -> Figure:
    """The ratio of two medians; the note has that of the least values, which a busy machine disturbs less."""
    note = f"of the least: {show(min(above) / min(below), 'x')}"
    return Figure(group, name, statistics.median(above) / statistics.median(below), "x", limit, at_least, note)


def spread(values: Iterable[float], unit: str) -> str:
    """The median, and the least, which is nearer to what an idle machine would show."""
    values = list(values)
    return f"{show(statistics.median(values), unit)} ({show(min(values), unit)})"


def align(rows: Iterable[Sequence[str]]) -> str:
    """Rows of text as columns of equal width."""
    rows = [list(row) for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def text(title: str, result: Result) -> str:
    """One benchmark: the absolute numbers side by side, then the figures with target and verdict."""
    parts = [title]
    if result.rows:
        parts.append(align([result.columns, *result.rows]))
    figures = [("figure", "measured", "target", "verdict", "")]
    figures += [(f.name, show(f.value, f.unit), f.target, f.verdict, f.note) for f in result.figures]
    parts.append(align(figures))
    return "\n\n".join(parts)


def summary(figures: Sequence[Figure]) -> str:
    """How many targets were met, and which were not."""
    judged = [figure for figure in figures if figure.limit is not None]
    missed = [f"{f.group}: {f.name}" for f in judged if f.verdict == "missed"]
    unmeasured = sum(f.verdict == "not measured" for f in judged)
    line = f"targets: {len(judged) - len(missed) - unmeasured} met, {len(missed)} missed, {unmeasured} not measured"
    return "\n  missed: ".join([line, *missed])
