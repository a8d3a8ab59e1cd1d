"""Where the time of one call goes: its ops, or the runs of recorded ops where ops are only recorded."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from torus.backend import device as tpu
from torus.backend.eager.report import Flush, shorten

MOST = 6
"""Rows that are kept."""


@dataclass(frozen=True)
class Row:
    """What ran, how often, and the seconds that it kept its thread, those of others inside it left out."""

    what: str
    calls: int
    seconds: float


def top(call: Callable[[], object], *, recorded: bool = False, most: int = MOST) -> list[Row]:
    """The rows of one call that took longest. `recorded`: the call's ops are recorded and fused."""
    rows = _flushes(call) if recorded else _ops(call)
    return sorted(rows, key=lambda row: -row.seconds)[:most]


def _ops(call: Callable[[], object]) -> list[Row]:
    """Ops and compiled graphs, as PyTorch's profiler sees them."""
    with torch.autograd.profiler.profile() as found:  # `torch.profiler` is this, and an import of Inductor
        call()
    return [Row(event.key, event.count, event.self_cpu_time_total / 1e6) for event in found.key_averages()]


def _flushes(call: Callable[[], object]) -> list[Row]:
    """Runs of recorded ops by the line that caused them, and what is left."""
    started = time.perf_counter()
    with tpu.explain() as report:
        call()
        tpu.synchronize()
    elapsed = time.perf_counter() - started
    rows = by_line(report.flushes)
    return [*rows, Row("recording, waiting and Python", 1, elapsed - sum(row.seconds for row in rows))]


def by_line(flushes: Iterable[Flush]) -> list[Row]:
    """A row for each line and way of running."""
    groups: dict[tuple[str, str, str], list[Flush]] = collections.defaultdict(list)
    for flush in flushes:
        groups[flush.how, flush.cause, shorten(flush.place)].append(flush)
    return [
        Row(
            f"{sum(flush.ops for flush in group)} ops {how} ({cause}{' at ' * bool(place)}{place})",
            len(group),
            sum(flush.seconds for flush in group),
        )
        for (how, cause, place), group in groups.items()
    ]
