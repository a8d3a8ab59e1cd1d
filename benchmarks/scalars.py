"""Values that change must not cost: new scalars and new offsets of ``x[i]`` compile nothing and retain nothing.

Resident memory is read from Linux's /proc after the first operations, which fill the caches that are bounded, and after
the last.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.places import Place
from benchmarks.report import Figure, Result
from benchmarks.worker import Worker

COUNT, WARMUP = 100_000, 1_000
MOST_PROGRAMS, MOST_MB = 0.0, 5.0


def resident_bytes() -> int:
    """Physical memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def changing_scalars(place: Place, count: int, warmup: int) -> dict[str, Any]:
    """``x * (1 + i / 1000)`` for `count` values of i, and whether the last one is right."""
    import torch

    x = torch.ones(4, 4, device=place.device)
    result = x

    def work(i: int) -> None:
        nonlocal result
        result = x * (1 + i / 1000)

    found = _grown(place, work, count, warmup)
    expected = torch.ones(4, 4) * (1 + (warmup + count - 1) / 1000)
    return {**found, "right": torch.equal(result.cpu(), expected)}


def changing_offsets(place: Place, count: int, warmup: int) -> dict[str, Any]:
    """``x[i] * 2`` for `count` values of i, and whether the last one is right."""
    import torch

    rows = torch.arange(4.0 * (count + warmup)).reshape(-1, 4)
    x = rows.to(place.device)
    result = x

    def work(i: int) -> None:
        nonlocal result
        result = x[i] * 2

    found = _grown(place, work, count, warmup)
    return {**found, "right": torch.equal(result.cpu(), rows[-1] * 2)}


def _grown(place: Place, work: Callable[[int], None], count: int, warmup: int) -> dict[str, Any]:
    work(0)
    after_first = programs()
    for i in range(1, warmup):
        work(i)
    place.synchronize()
    gc.collect()
    before = resident_bytes()
    for i in range(warmup, warmup + count):
        work(i)
    place.synchronize()
    gc.collect()
    return {"programs": programs() - after_first, "growth_mb": (resident_bytes() - before) / 1e6, "operations": count}


def programs() -> int:
    """Programs made so far, whether compiled or read from the cache."""
    import torch

    counted = torch.tpu.counters()
    return int(counted["compiles"] + counted["cache_hits"])


def run(quick: bool) -> Result:
    """Both loops, in a process of their own so that nothing else grows in it. Raises ValueError for a wrong result."""
    count, warmup = (200, 20) if quick else (COUNT, WARMUP)
    figures, samples = [], {}
    with Worker("tpu") as worker:
        for function, what in (("changing_scalars", "scalars"), ("changing_offsets", "offsets x[i]")):
            found = samples[what] = worker.call(f"benchmarks.scalars:{function}", count=count, warmup=warmup)
            if not found["right"]:
                raise ValueError(f"changing {what} gave a wrong result")
            title = f"{count:,} ops with changing {what}"
            figures.append(
                Figure("scalars", f"{title}: programs after the first", found["programs"], "", MOST_PROGRAMS)
            )
            figures.append(Figure("scalars", f"{title}: growth of resident memory", found["growth_mb"], "MB", MOST_MB))
    return Result(figures, samples=samples)
