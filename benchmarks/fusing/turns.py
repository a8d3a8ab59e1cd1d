"""Cases that several places take turns at: time of a call once it is warm, programs for it, and what it gives.

A case names a module's ``work(place, case, quick)``, which returns a function without arguments: one call is what is
measured. Fused programs are compiled at once here (fusing "foreground"), before the first sample.
"""

from __future__ import annotations

import functools
import importlib
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.places import TITLES, Place
from benchmarks.report import Figure, Result, ratio, spread
from benchmarks.worker import Worker, in_turn

FUSED, STRICT, JAX = "tpu_fused", "tpu", "jax"
CPU = ("cpu", "cpu_threads")
PLACES = (FUSED, STRICT, *CPU, JAX)
CLOCKS = {"wall": "wall time", "cpu": "CPU time of all threads"}
COUNTED = ("programs", "flushes", "compiles")
MOST_DIFFERENCE = 1e-3
_READ = 8
"""So many numbers of each result are compared."""


@dataclass(frozen=True)
class Case:
    """What to measure, and the most that a ratio to it may be.

    `number` calls are one sample; they are waited for one by one with `each`, together without. `most_cpu` is set
    against the faster of the two CPU settings. `least_speedup` is of fused against strict.
    """

    name: str
    number: int
    each: bool = True
    places: Sequence[str] = field(default=(FUSED, STRICT, *CPU))
    most_cpu: float | None = None
    most_jax: float | None = None
    least_speedup: float | None = None
    most_programs: float | None = None


def result_of(place: Place, work: str, case: str, quick: bool, calls: int) -> list[list[float]]:
    """The first numbers that each of the first `calls` calls gives, read one by one."""
    call = _prepared(place, work, case, quick)
    return [_numbers(place, call()) for _ in range(calls)]


def sample(place: Place, work: str, case: str, quick: bool, number: int, each: bool) -> dict[str, float]:
    """Microseconds of a call (mean of `number`) on the clock and as CPU time of all threads, and what it counted."""
    call = _prepared(place, work, case, quick)
    place.synchronize()
    before = _counted(place)
    wall, cpu = time.perf_counter(), time.process_time()
    for i in range(number):
        result = call()
        if each or i + 1 == number:
            _wait(place, result)
    found = {
        "wall": 1e6 * (time.perf_counter() - wall) / number,
        "cpu": 1e6 * (time.process_time() - cpu) / number,
    }
    after = _counted(place)
    return found | {name: (after[name] - before[name]) / number for name in after}


@functools.lru_cache(maxsize=1)  # the case before is not needed any more, and a model may be large
def _prepared(place: Place, work: str, case: str, quick: bool) -> Callable[[], Any]:
    return importlib.import_module(work).work(place, case, quick)


def _wait(place: Place, result: Any) -> None:
    if place.name == JAX:
        result.block_until_ready()
    else:
        place.synchronize()


def _numbers(place: Place, result: Any) -> list[float]:
    if place.name != JAX:
        result = result.detach().cpu().numpy()
    import numpy

    return numpy.asarray(result, dtype=float).ravel()[:_READ].tolist()


def _counted(place: Place) -> dict[str, int]:
    if place.device != "tpu":
        return {}
    import torch

    counters = torch.tpu.counters()
    return {name: counters[name] for name in COUNTED}


def measure(
    group: str, work: str, cases: Sequence[Case], workers: Sequence[Worker], rounds: int, quick: bool, calls: int = 1
) -> Result:
    """Every case in its places, `rounds` times in turns; results of the first `calls` calls are compared with CPU's."""
    figures, rows, samples, differences = [], [], {}, {}
    for case in cases:
        chosen = [worker for worker in workers if worker.place in case.places]
        asked = {"work": work, "case": case.name, "quick": quick}
        values = {w.place or "": w.call("benchmarks.fusing.turns:result_of", **asked, calls=calls) for w in chosen}
        differences[case.name] = _largest_difference(values)
        timed = asked | {"number": 2 if quick else case.number, "each": case.each}
        for worker in chosen:
            worker.call("benchmarks.fusing.turns:sample", **timed)
        found = samples[case.name] = in_turn(chosen, rounds, "benchmarks.fusing.turns:sample", **timed)
        rows += _rows(case, found)
        figures += _figures(group, case, found)
    figures.append(_compiled(group, samples))
    figures.append(_right(group, differences))
    return Result(figures, [group, *(TITLES[place] for place in PLACES)], rows, samples)


def _rows(case: Case, found: dict[str, list[dict[str, float]]]) -> list[list[str]]:
    def cell(place: str, clock: str) -> str:
        return spread([one[clock] for one in found[place]], "us") if place in found else "-"

    return [[f"{case.name}, {meaning}", *(cell(p, clock) for p in PLACES)] for clock, meaning in CLOCKS.items()]


def _figures(group: str, case: Case, found: dict[str, list[dict[str, float]]]) -> list[Figure]:
    wall = {place: [one["wall"] for one in taken] for place, taken in found.items()}
    baselines = [place for place in CPU if place in wall]
    faster = min(baselines, key=lambda place: statistics.median(wall[place]))
    most = dict.fromkeys([faster], case.most_cpu) | {JAX: case.most_jax}
    figures = [
        ratio(group, f"ratio fused / {TITLES[place]}, {case.name}", wall[FUSED], wall[place], most.get(place))
        for place in (*baselines, JAX)
        if place in wall
    ]
    name = f"ratio strict / fused, {case.name}"
    figures.append(ratio(group, name, wall[STRICT], wall[FUSED], case.least_speedup, at_least=True))
    figures.append(ratio(group, f"ratio strict / {TITLES[faster]}, {case.name}", wall[STRICT], wall[faster]))
    for counted, limit in (("programs", case.most_programs), ("flushes", None)):
        values = [one[counted] for one in found[FUSED]]
        figures.append(Figure(group, f"{counted} a call, fused, {case.name}", statistics.median(values), "", limit))
    return figures


def _compiled(group: str, samples: dict[str, dict[str, list[dict[str, float]]]]) -> Figure:
    """Warm calls compile nothing, in either mode."""
    counts = {
        case: sum(one["compiles"] for place in (FUSED, STRICT) for one in found.get(place, []))
        for case, found in samples.items()
    }
    note = ", ".join(case for case, count in counts.items() if count)
    return Figure(
        group, "calls that compiled while they were measured", sum(c > 0 for c in counts.values()), "", 0.0, note=note
    )


def _right(group: str, differences: dict[str, dict[str, float]]) -> Figure:
    case, place, worst = max(
        ((case, place, value) for case, found in differences.items() for place, value in found.items()),
        key=lambda found: found[2],
    )
    name = "largest difference of a result from CPU eager's, relative"
    return Figure(group, name, worst, "", MOST_DIFFERENCE, note=f"{case}, {TITLES[place]}")


def _largest_difference(values: dict[str, list[list[float]]]) -> dict[str, float]:
    """For each place, the most that any call's numbers are away from those of CPU eager, by the largest of these."""
    return {
        place: max(_difference(got, wanted) for got, wanted in zip(calls, values[CPU[0]]))
        for place, calls in values.items()
        if place != CPU[0]
    }


def _difference(got: list[float], wanted: list[float]) -> float:
    if not all(map(math.isfinite, got)):
        return math.inf
    return max(abs(a - b) for a, b in zip(got, wanted)) / max(map(abs, wanted))
