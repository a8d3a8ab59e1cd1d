"""A loop whose length, scalars and random numbers change each time and that reads a value each time.

Programs are compiled in the background. There must be a bound on them and on memory, though lengths are random. The
strict mode does some iterations first, from the same seed: the programs of single ops are then there, so that what is
made later is fused, and the values must be the same.
"""

from __future__ import annotations

import gc
import random
import time
from typing import Any

from benchmarks.places import Place
from benchmarks.report import Figure, Result
from benchmarks.scalars import programs, resident_bytes
from benchmarks.worker import Worker

GROUP = "fuse-loop"
ITERATIONS, LONGEST = 1000, 200
MOST_MB = 5.0
MOST_DIFFERENCE = 1e-4
CHECKED = 20


class Loop:
    """The iterations in order, each with its own length and scalars; equal seeds give equal loops."""

    def __init__(self, device: str, longest: int) -> None:
        import torch

        torch.manual_seed(0)
        self._choose = random.Random(0)
        self._longest = longest
        self._x = torch.zeros(16, 16).to(device)
        self.operations = 0

    def iterate(self) -> float:
        """One iteration, which ends with reading a value."""
        import torch

        x = self._x
        for _ in range(self._choose.randint(1, self._longest)):
            x = torch.tanh(x * self._choose.uniform(0.5, 1.0) + torch.randn(16, 16, device=x.device))
            self.operations += 4
        self._x = x
        return float(x.sum().item())


def measure(place: Place, iterations: int, longest: int) -> dict[str, Any]:
    """Programs, seconds, memory over the second half, and the largest difference from strict mode."""
    import torch

    from torus.backend.eager import fuse

    def half(count: int) -> list[float]:
        values = [loop.iterate() for _ in range(count)]
        fuse.wait_for_compiles(None)
        gc.collect()
        return values

    checked = min(CHECKED, iterations // 2)
    loop = Loop(place.device, longest)
    expected = [loop.iterate() for _ in range(checked)]
    torch.tpu.eager_mode, torch.tpu.fusing = torch.tpu.EagerMode.DEFER_AND_FUSE, "background"
    loop = Loop(place.device, longest)
    before, start, flushes = programs(), time.perf_counter(), torch.tpu.counters()["flushes"]
    values = half(iterations // 2)
    middle, made = resident_bytes(), programs() - before
    half(iterations - iterations // 2)
    return {
        "programs": programs() - before,
        "programs_first_half": made,
        "flushes": torch.tpu.counters()["flushes"] - flushes,
        "growth_mb": (resident_bytes() - middle) / 1e6,
        "seconds": time.perf_counter() - start,
        "operations": loop.operations,
        "difference": max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(values, expected)),
    }


def run(quick: bool) -> Result:
    """The loop in a process of its own, so that nothing else grows in it."""
    iterations, longest = (20, 10) if quick else (ITERATIONS, LONGEST)
    with Worker("tpu") as worker:
        found = worker.call("benchmarks.fusing.lengths:measure", iterations=iterations, longest=longest)
    title = f"{iterations:,} iterations of 1 to {longest} steps"
    figures = [
        Figure(GROUP, f"{title}: fused programs made", found["programs"], note="the bound"),
        Figure(GROUP, f"{title}: of these, in the first half", found["programs_first_half"]),
        Figure(GROUP, f"{title}: flushes an iteration", found["flushes"] / iterations),
        Figure(GROUP, f"{title}: growth of resident memory in the second half", found["growth_mb"], "MB", MOST_MB),
        Figure(GROUP, f"{title}: seconds", found["seconds"], "s", note=f"{found['operations']:,} ops"),
        Figure(GROUP, "largest difference from strict mode, relative", found["difference"], "", MOST_DIFFERENCE),
    ]
    return Result(figures, samples=found)
