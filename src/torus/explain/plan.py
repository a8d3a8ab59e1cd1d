"""What a run will cost, before it runs: the method itself, on a function that only counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from torus.cli.texts import plural
from torus.explain import methods
from torus.explain.chunks import Chunked
from torus.explain.function import Function, Program
from torus.explain.methods import Run
from torus.explain.points import Points, rows, total


@dataclass(frozen=True)
class Plan:
    """Rows of points that the model will be asked for, filling included, in how many calls, and the most in one.

    For a method that stops when it has converged it is the least that it takes.
    """

    method: str
    values: int
    gradients: int
    calls: int
    largest: int

    def __str__(self) -> str:
        asked = [plural(count, what) for count, what in ((self.values, "value"), (self.gradients, "gradient")) if count]
        counted = " and ".join(asked) or "nothing"
        return f"{self.method}: {counted} in {plural(self.calls, 'call')} of at most {plural(self.largest, 'row')}"


def plan(name: str, points: Points, baselines: Points, run: Run, **options: Any) -> Plan:
    """The cost of a method at points and baselines of these shapes, without a call of the model.

    The function it sees is the sum of a row's elements, for which everything converges at once.
    """
    rehearsal = _Rehearsal(rows(points))
    function: Function = rehearsal if run.chunk is None else Chunked(rehearsal, run.chunk)
    methods.method(name)(function, points, baselines, run, **options)
    return Plan(name, rehearsal.values, rehearsal.gradients, rehearsal.calls, rehearsal.largest)


class _Rehearsal:
    """A function of the contract that counts."""

    def __init__(self, examples: int) -> None:
        self._examples = examples
        self.values = self.gradients = self.calls = self.largest = 0

    @property
    def examples(self) -> int:
        return self._examples

    def value(self, points: Points) -> torch.Tensor:
        self.values += rows(points)
        return self._counted(points)

    def grad(self, points: Points) -> tuple[torch.Tensor, Points]:
        self.gradients += rows(points)
        return self._counted(points), tuple(torch.ones_like(tensor) for tensor in points)

    def apply(self, program: Program, points: Points) -> Points:
        self.gradients += rows(points)
        return program(self._counted, points)

    def _counted(self, points: Points) -> torch.Tensor:
        self.calls += 1
        self.largest = max(self.largest, rows(points))
        return total(points)
