"""What recording one op costs the thread that calls it: its CPU time, without a flush while the clock runs.

Statements run in batches that stay below the size at which a recording is run by itself; between batches it is run.
The results are dropped, as they are by CPU eager in the same loop. CPU eager does the work meanwhile, which in a matmul
of 4x4 is nothing.
"""

from __future__ import annotations

import statistics
import time
import timeit
from collections.abc import Sequence

from benchmarks.ops import operands
from benchmarks.places import TITLES, Place
from benchmarks.report import Figure, Result, median, ratio, spread
from benchmarks.worker import Worker, in_turn

GROUP = "fuse-record"
STATEMENTS = {"x + y": "x + y", "64x64 matmul": "w @ w", "4x4 matmul": "x @ y", "x + 1": "x + 1"}
MOST_US = {"x + y": 1.0, "64x64 matmul": 1.3, "4x4 matmul": 1.3, "x + 1": 1.8}
MOST_RATIO = {"x + y": 1.1, "64x64 matmul": 1.2, "4x4 matmul": 1.2, "x + 1": 0.75}
PLACES = ("tpu_fused", "tpu", "cpu")
BATCH, BATCHES = 200, 15


def sample(place: Place, number: int, batches: int) -> dict[str, float]:
    """Microseconds of this thread's CPU time for one execution of each statement: the median batch of `number`."""
    found, flushes = {}, 0
    for name, statement in STATEMENTS.items():
        timer = timeit.Timer(statement, globals=operands(place.device), timer=time.thread_time)
        spent = []
        for _ in range(batches):
            place.synchronize()
            before = _flushes(place)
            spent.append(1e6 * timer.timeit(number) / number)
            flushes += _flushes(place) - before
        place.synchronize()
        found[name] = statistics.median(spent)
    return found | {"flushes": flushes}


def _flushes(place: Place) -> int:
    if place.device != "tpu":
        return 0
    import torch

    return int(torch.tpu.counters()["flushes"])


def run(workers: Sequence[Worker], rounds: int, quick: bool) -> Result:
    """Measure in the places of `workers`, which are those of `PLACES`."""
    asked = {"number": BATCH, "batches": 2 if quick else BATCHES}
    for worker in workers:
        worker.call("benchmarks.fusing.record:sample", **asked)
    samples = in_turn(workers, rounds, "benchmarks.fusing.record:sample", **asked)
    times = {place: {n: [one[n] for one in taken] for n in STATEMENTS} for place, taken in samples.items()}
    fused, cpu = times["tpu_fused"], times["cpu"]
    figures = [median(GROUP, f"{n} recorded, CPU time", fused[n], "us", MOST_US[n]) for n in STATEMENTS]
    figures += [
        ratio(GROUP, f"ratio recorded / {TITLES['cpu']}, {n}", fused[n], cpu[n], MOST_RATIO[n]) for n in STATEMENTS
    ]
    inside = sum(one["flushes"] for one in samples["tpu_fused"])
    figures.append(Figure(GROUP, "flushes while the clock ran", inside, "", 0.0))
    rows = [[n, *(spread(times[place][n], "us") for place in times)] for n in STATEMENTS]
    return Result(figures, ["one call", *(TITLES[place] for place in times)], rows, samples)
