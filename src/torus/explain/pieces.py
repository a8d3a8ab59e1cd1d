"""The pieces that paths are cut into: which to cut next, and where. All on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from torus.explain.paths import FIGURES

Array = Any
EDGE = 0.02
"""A piece is cut at least this part of it away from its ends: nothing is known of the inside of its outermost gaps."""


class Pieces:
    """All pieces of q paths that were ever measured, (n, q) each; those that were cut are no longer `alive`.

    ``figures`` (n, q, f) are those of `torus.explain.paths.FIGURES`, ``cuts`` where in (0, 1) to cut.
    """

    def __init__(self, paths: int, nodes: Array) -> None:
        self.low, self.width, self.cuts = (np.zeros((0, paths)) for _ in range(3))
        self.alive = np.zeros((0, paths), bool)
        self.figures = np.zeros((0, paths, len(FIGURES)))
        self.nodes = nodes

    def whole(self, count: int) -> tuple[Array, Array]:
        """Where `count` equal pieces of each path begin, and their widths, (count, q)."""
        width = np.full((count, self.low.shape[1]), 1 / count)
        return np.arange(count)[:, None] * width, width

    def cut(self, count: int) -> tuple[Array, Array]:
        """The same for `count` pieces that the worst of each path are cut into."""
        worst = np.argsort(np.where(self.alive, -self._squares(), np.inf), axis=0, kind="stable")[: count // 2]
        np.put_along_axis(self.alive, worst, False, axis=0)
        low, width, cut = (np.take_along_axis(known, worst, axis=0) for known in (self.low, self.width, self.cuts))
        return np.concatenate([low, low + cut * width]), np.concatenate([cut * width, (1 - cut) * width])

    def add(self, low: Array, width: Array, measured: Array) -> None:
        """Pieces, (p, q) each, and what `torus.explain.paths.Paths.measure` found there."""
        self.low, self.width = np.concatenate([self.low, low]), np.concatenate([self.width, width])
        self.figures = np.concatenate([self.figures, measured[..., : len(FIGURES)]])
        self.cuts = np.concatenate([self.cuts, cuts(self.nodes, measured[..., len(FIGURES) :])])
        self.alive = np.concatenate([self.alive, np.ones(low.shape, bool)])

    def sums(self) -> Array:
        """The sum of all integrals over each path, (q,)."""
        return self._living("sums").sum(0)

    def errors(self) -> Array:
        """The error over each path, (q,): pieces err independently of each other."""
        return np.sqrt(self._squares().sum(0))

    def rounding(self, epsilon: float) -> Array:
        """What rounding does to the sum and the change along each path, (q,): many small errors, now up, now down."""
        values = epsilon * self._living("magnitude").max(0)
        return 8 * np.sqrt((self._living("rounding") ** 2).sum(0) + values**2)

    def _squares(self) -> Array:
        """The square of the error of each living piece, (n, q)."""
        return self._living("errors") ** 2 + self._living("jumps").sum(0) * self._living("doubt")

    def _living(self, figure: str) -> Array:
        return np.where(self.alive, self.figures[..., FIGURES.index(figure)], 0.0)


def cuts(nodes: Array, variation: Array) -> Array:
    """Where half of the trapezoid rule's error lies on either side; of variations (..., k - 1) over gaps of nodes (k,).

    A narrow part that matters is found in a few cuts so; halving needs one for each factor of 2.
    """
    gaps = np.diff(nodes)
    area = np.cumsum(variation * gaps, axis=-1)
    half = area[..., -1:] / 2
    gap = np.argmax(area >= half, axis=-1)[..., None]
    above = np.take_along_axis(area, gap, axis=-1)
    inside = np.take_along_axis(variation * gaps, gap, axis=-1)
    part = np.divide(half - above + inside, inside, out=np.full_like(inside, 0.5), where=inside > 0)
    at = np.where(area[..., -1:] > 0, nodes[gap] + part * gaps[gap], 0.5)
    return np.clip(at, EDGE, 1 - EDGE)[..., 0]
