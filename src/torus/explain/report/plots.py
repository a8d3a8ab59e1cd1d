"""How the gap fell with the work."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torus.explain.report.drawing import LINE, SOFT, Box, Drawing, Label, Lines

WIDTH, HEIGHT = 560.0, 240.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 14.0, 12.0, 38.0
_BLUE, _ORANGE = "#4285d6", "#e67e22"


def convergence(history: Sequence[tuple[int, float]], tolerance: float) -> Drawing:
    """Relative gap against rows so far, both logarithmic, with the tolerance as a line. Gaps of 0 lie at the bottom."""
    drawing = Drawing(WIDTH, HEIGHT)
    points = [(count, gap) for count, gap in history if count > 0 and math.isfinite(gap)]
    sizes = [gap for _, gap in points if gap > 0] + [tolerance]
    low, high = math.floor(math.log10(min(sizes))), math.ceil(math.log10(max(sizes)))
    first, last = points[0][0], max(points[-1][0], points[0][0] + 1)

    def across(count: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(count / first) / math.log(last / first)

    def down(gap: float) -> float:
        share = (math.log10(gap) - low) / max(1, high - low) if gap > 0 else 0.0
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - max(0.0, share))

    for exponent in range(low, high + 1, max(1, (high - low) // 6)):
        y = down(10.0**exponent)
        drawing.add(
            Lines([(LEFT, y), (WIDTH - RIGHT, y)], LINE), Label(LEFT - 6, y + 4, f"1e{exponent:+d}", 12, SOFT, "end")
        )
    drawing.add(
        Lines([(LEFT, down(tolerance)), (WIDTH - RIGHT, down(tolerance))], _ORANGE, 1.5),
        Label(WIDTH - RIGHT, down(tolerance) - 5, "tolerance", 12, SOFT, "end"),
        Lines([(across(count), down(gap)) for count, gap in points], _BLUE, 2),
    )
    for count, gap in points:
        drawing.add(Box(across(count) - 2.5, down(gap) - 2.5, 5, 5, _BLUE))
    drawing.add(
        Label(LEFT, HEIGHT - BOTTOM + 16, f"{first:,}", 12, SOFT),
        Label(WIDTH - RIGHT, HEIGHT - BOTTOM + 16, f"{last:,}", 12, SOFT, "end"),
        Label(
            (LEFT + WIDTH - RIGHT) / 2,
            HEIGHT - 6,
            "rows of the model, and the relative gap after them",
            12,
            SOFT,
            "middle",
        ),
    )
    return drawing


def plottable(history: Sequence[tuple[int, float]]) -> bool:
    """Whether there is something to see."""
    return sum(count > 0 and math.isfinite(gap) for count, gap in history) > 1
