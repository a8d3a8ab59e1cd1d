"""Blue for what raises the explained number, orange for what lowers it: told apart by colour-blind readers too."""

from __future__ import annotations

import math
from collections.abc import Iterable

POSITIVE = (66, 133, 214)
NEGATIVE = (230, 126, 34)
DEEPEST = 0.75
"""Opacity of the largest score, at which text on it can still be read in light and dark."""


def scale(scores: Iterable[float]) -> float:
    """The largest size of a score, 1 where all are 0; what is not finite does not count."""
    return max((abs(score) for score in scores if math.isfinite(score)), default=0.0) or 1.0


def opacity(score: float, largest: float) -> float:
    """From 0 for 0 to `DEEPEST` for the largest."""
    return min(1.0, abs(score) / largest) * DEEPEST if math.isfinite(score) else 0.0


def shade(score: float, largest: float) -> str:
    """The background of a score as CSS, in the theme's colours."""
    name = "positive" if score >= 0 else "negative"
    return f"background:rgb(var(--{name})/{opacity(score, largest):.3f})"


def mixed(score: float, largest: float) -> str:
    """The same on white, as ``#rrggbb``, for files that have no theme."""
    alpha = opacity(score, largest)
    colour = POSITIVE if score >= 0 else NEGATIVE
    return "#" + "".join(f"{round(255 + (part - 255) * alpha):02x}" for part in colour)
