"""What a piece of work costs on a device: seconds, programs, compiles, memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

T = TypeVar("T")
Counts = dict[str, int] | None


@dataclass(frozen=True)
class Cost(Generic[T]):
    """A first call and the median of later ones, with what the device counted; `None` where it does not count (CPU)."""

    result: T
    first_s: float
    warm_s: float
    first: Counts
    warm: Counts


def counters(device: str) -> Counts:
    """What the device has counted so far in this process: programs, compiles, cache_hits, fallbacks, ..."""
    return dict(torch.tpu.counters()) if device == "tpu" else None


def peak_memory(device: str) -> int | None:
    """The most bytes that tensors on the device held at once in this process."""
    return int(torch.accelerator.max_memory_allocated()) if device == "tpu" else None


def fallbacks(device: str) -> dict[str, int] | None:
    """Ops that ran on the CPU for want of a rule, with their number of calls."""
    return {str(op): n for op, n in torch.tpu.fallbacks().items()} if device == "tpu" else None


def device_name(device: str) -> str:
    """The name of the hardware behind the device string."""
    return str(torch.tpu.get_device_name()) if device == "tpu" else "PyTorch CPU"


def measure(work: Callable[[], T], device: str, repeats: int, on_run: Callable[[], None] = lambda: None) -> Cost[T]:
    """Call `work` once cold and `repeats` times warm; `on_run` is called after each.

    Work must return values on the CPU: the device runs asynchronously, and only reading it waits for its end.
    """
    seconds: list[float] = []
    counts: list[Counts] = [counters(device)]
    for _ in range(1 + repeats):
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
        counts.append(counters(device))
        on_run()
    return Cost(
        result,
        seconds[0],
        statistics.median(seconds[1:]),
        _change(counts[0], counts[1]),
        _change(counts[-2], counts[-1]),
    )


def max_relative_error(value: torch.Tensor, reference: torch.Tensor) -> float:
    """max|value - reference| / max|reference|, computed in float64."""
    value, reference = value.double(), reference.double()
    return float((value - reference).abs().max() / reference.abs().max())


def _change(before: Counts, after: Counts) -> Counts:
    return None if before is None or after is None else {name: n - before.get(name, 0) for name, n in after.items()}
