"""What a run cost: time, programs, transfers and memory, on any device."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from torus.backend import device as tpu
from torus.explain.function import Function, Program
from torus.explain.points import Points, rows


@dataclass
class Cost:
    """Filled in when the block ends. On the CPU there are no programs and transfers, and its memory is not counted."""

    seconds: float = 0.0
    counted: dict[str, int] = field(default_factory=dict)
    peak_memory: int | None = None
    values: int = 0
    gradients: int = 0


@contextlib.contextmanager
def measured(device: torch.device) -> Iterator[Cost]:
    """Measure the block, with everything that it launched on the device."""
    cost = Cost()
    on_device = device.type == "tpu"
    if on_device:
        tpu.synchronize()
        tpu.reset_peak_memory_stats()
        before = tpu.counters()
    started = time.perf_counter()
    yield cost
    if on_device:
        tpu.synchronize()
        after = tpu.counters()
        cost.counted = {name: after[name] - count for name, count in before.items()}
        cost.peak_memory = tpu.max_memory_allocated()
    cost.seconds = time.perf_counter() - started


class Counted:
    """A function that counts the rows it is asked for in a `Cost`."""

    def __init__(self, function: Function, cost: Cost) -> None:
        self.function, self.cost = function, cost

    @property
    def examples(self) -> int:
        return self.function.examples

    def value(self, points: Points) -> torch.Tensor:
        self.cost.values += rows(points)
        return self.function.value(points)

    def grad(self, points: Points) -> tuple[torch.Tensor, Points]:
        self.cost.gradients += rows(points)
        return self.function.grad(points)

    def apply(self, program: Program, points: Points) -> Points:
        self.cost.gradients += rows(points)
        return self.function.apply(program, points)
