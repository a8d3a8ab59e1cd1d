"""Many points in pieces of one size, so that memory is bounded and one program serves them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from torus.explain.function import Function, Program
from torus.explain.points import Points, repeat, rows


class Chunked:
    """A function that asks another for at most `size` copies of the examples at once.

    Every call it makes has the same number of rows: what is left at the end is filled up with copies of the last rows,
    whose results are dropped.
    """

    def __init__(self, function: Function, size: int) -> None:
        if size < 1:
            raise ValueError(f"a chunk holds at least 1 copy of the examples, not {size}")
        self.function, self.size = function, size

    @property
    def examples(self) -> int:
        return self.function.examples

    def value(self, points: Points) -> torch.Tensor:
        count = rows(points)
        return torch.cat(self._each("value", self._pieces(points)))[:count]

    def grad(self, points: Points) -> tuple[torch.Tensor, Points]:
        count = rows(points)
        found = self._each("grad", self._pieces(points))
        values = torch.cat([value for value, _ in found])[:count]
        return values, tuple(
            torch.cat(parts)[:count] for parts in zip(*(gradient for _, gradient in found), strict=True)
        )

    def apply(self, program: Program, points: Points) -> Points:
        return self.function.apply(program, points)

    def _each(self, what: str, pieces: Iterable[Points]) -> list[Any]:
        """What the function gives for each piece, in their order."""
        return [getattr(self.function, what)(piece) for piece in pieces]

    def _pieces(self, points: Points) -> Iterator[Points]:
        step = self.size * self.examples
        count = rows(points)
        if count <= step:
            yield points
            return
        for first in range(0, count, step):
            # copies, since matrix products on the CPU give other bits for memory that starts elsewhere
            piece = tuple(tensor[first : first + step].clone() for tensor in points)
            short = (step - rows(piece)) // self.examples
            if short:
                filling = repeat(tuple(tensor[-self.examples :] for tensor in piece), short)
                piece = tuple(torch.cat(pair) for pair in zip(piece, filling, strict=True))
            yield piece
