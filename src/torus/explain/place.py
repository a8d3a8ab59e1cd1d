"""Where and in what pieces a run takes place: its budget, its chunk and its devices, decided before it starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from torus.explain import sharding
from torus.explain.budget import chunk_within
from torus.explain.chunks import Chunked
from torus.explain.function import Function, ModelFunction
from torus.explain.methods import Run
from torus.explain.points import Points


@dataclass(frozen=True)
class Place:
    """`run` is what the method is told: its chunk is all copies that run at once, `size` of them on each device."""

    run: Run
    size: int | None
    sharding: sharding.Sharding | None

    def function(self, original: ModelFunction, prepare: Callable[[Function], Function]) -> Function:
        """The function as a method sees it; `prepare` is done to it on each device."""
        if self.size is None:
            return prepare(original)
        if self.sharding is None:
            return Chunked(prepare(original), self.size)
        return self.sharding.function(original, self.size, prepare)

    def probe(self, original: ModelFunction) -> Function:
        """The function for a few points beforehand, that take no more memory than one copy of the examples."""
        return original if self.size is None else Chunked(original, 1)

    @property
    def extras(self) -> dict[str, str]:
        """What the user is told about it."""
        return {} if self.sharding is None else {"sharding": self.sharding.reason}


def placed(
    original: ModelFunction,
    points: Points,
    run: Run,
    *,
    budget: int | None,
    devices: sharding.Devices,
    gradients: bool,
    held: int,
) -> Place:
    """The largest pieces that the budget allows, no larger than the chunk that was asked for, and where they run."""
    size = run.chunk
    if budget is not None:
        most = 1 if devices is None else sharding.most(devices, points)
        fitting = chunk_within(budget, original, points, gradients=gradients, devices=most, held=held)
        size = min(fitting, size or fitting)
    if devices is None:
        return Place(dataclasses.replace(run, chunk=size), size, None)
    size = size or sharding.SIZE
    chosen = sharding.chosen(devices, original, points, size, gradients=gradients)
    return Place(dataclasses.replace(run, chunk=size * chosen.ways), size, chosen)
