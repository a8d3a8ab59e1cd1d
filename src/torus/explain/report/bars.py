"""Numbers with names as bars to the left and right."""

from __future__ import annotations

from collections.abc import Sequence

from torus.explain.report import colours
from torus.explain.report.markup import escape, number, table

MOST = 200


def ranked(
    names: Sequence[str],
    scores: Sequence[float],
    *,
    values: Sequence[float] | None = None,
    errors: Sequence[float] | None = None,
    what: str = "Feature",
    most: int = MOST,
) -> str:
    """A table of the largest scores by size, with the features' values and the scores' standard errors if given."""
    largest = colours.scale(scores)
    order = sorted(range(len(scores)), key=lambda index: -abs(scores[index]))[:most]
    head = [what, *(["Value"] if values else []), "Score", *(["± standard error"] if errors else []), ""]
    rows = [
        [
            escape(names[index]) or "&nbsp;",
            *([number(values[index], signed=False)] if values else []),
            number(scores[index]),
            *([number(errors[index], signed=False)] if errors else []),
            _bar(scores[index], largest),
        ]
        for index in order
    ]
    left = len(scores) - len(order)
    note = f'<p class="sum">and {left:,} smaller ones</p>' if left else ""
    return table(head, rows, "bars") + note


def _bar(score: float, largest: float) -> str:
    width = 100 * min(1.0, abs(score) / largest) if score == score else 0.0
    return f'<div class="bar"><i class="{"up" if score >= 0 else "down"}" style="width:{width:.1f}%"></i></div>'
