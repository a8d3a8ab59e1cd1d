"""The value of coalitions: what every method here asks for."""

from __future__ import annotations

from collections.abc import Callable

import torch

from torus.explain.coalitions.segments import Given, Segments
from torus.explain.function import Function
from torus.explain.methods import Attribution, Run
from torus.explain.points import Points

BATCH = 64
"""Coalitions that run at once where no chunk is given."""


class Game:
    """Features of points and the value of the function for coalitions of them, (n, b), in float64 on the host.

    Whatever the number of coalitions, the function is asked for batches of one size and the host reads once.
    """

    def __init__(self, function: Function, points: Points, baselines: Points, run: Run, segments: Given = None) -> None:
        self.function, self.points, self.baselines = function, points, baselines
        self.segments = Segments(segments, points)
        self.features = self.segments.count
        self.size = run.chunk or BATCH

    def values(self, count: int, keep: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """The values of `count` coalitions: ``keep(indices)`` gives those of some indices, (r, features), as needed."""
        return in_batches(self.function, self.points, count, self.size, lambda rows: self._rows(keep(rows)))

    def values_of(self, coalitions: torch.Tensor) -> torch.Tensor:
        """The values of coalitions (n, features)."""
        return self.values(len(coalitions), lambda rows: coalitions[rows])

    def ends(self) -> torch.Tensor:
        """The values with no feature and with all of them, (2, b), from the examples as they are."""
        coalitions = torch.tensor([[False], [True]]).expand(2, self.features)
        return in_batches(self.function, self.points, 2, 1, lambda rows: self._rows(coalitions[rows]))

    def attribution(
        self,
        found: torch.Tensor,
        *,
        expected: torch.Tensor | None = None,
        standard_error: torch.Tensor | None = None,
        error: torch.Tensor | None = None,
        verdict: str = "",
        history: tuple[tuple[int, float], ...] = (),
    ) -> Attribution:
        """An attribution from numbers of features, (b, features) or (b, features, m); also ``extras["features"]``."""
        extras = {"features": found}
        errors = None
        if standard_error is not None:
            extras["features_standard_error"] = standard_error
            errors = self._like_points(standard_error)
        device = self.points[0].device
        dtype = result_dtype(self.points)
        return Attribution(
            self._like_points(found),
            expected=None if expected is None else expected.to(device, dtype),
            error=error,
            standard_error=errors,
            verdict=verdict,
            history=history,
            extras=extras,
        )

    def _like_points(self, features: torch.Tensor) -> Points:
        return self.segments.spread(features, self.points, result_dtype(self.points))

    def _rows(self, keep: torch.Tensor) -> Points:
        return self.segments.choose(keep.to(self.points[0].device), self.points, self.baselines)


def in_batches(
    function: Function, points: Points, count: int, size: int, make: Callable[[torch.Tensor], Points]
) -> torch.Tensor:
    """The function at `count` copies of the points, (count, b), where ``make(indices)`` makes those of `size` indices;
    (count, b, m) where it gives m numbers a row.

    A last batch that is short repeats its last copy. Reductions are the caller's, so that batches never show in them.
    """
    size = min(size, count)
    found = []
    for first in range(0, count, size):
        indices = torch.arange(first, first + size).clamp_max(count - 1)
        found.append(function.value(make(indices)))
    return torch.cat(found).cpu().double().unflatten(0, (-1, len(points[0])))[:count]


def result_dtype(points: Points) -> torch.dtype:
    """What attributions have: the floating type of the points, float32 for integers."""
    kinds = [point.dtype for point in points if point.dtype.is_floating_point]
    return kinds[0] if kinds else torch.float32
