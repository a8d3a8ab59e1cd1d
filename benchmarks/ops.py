"""What one eager op and one view cost the thread that calls it: CPU time of the enqueue, not of the work.

The operands live outside autograd. The statement runs in timeit's loop under the clock of the thread; the loop itself
costs about 0.02 us. Between samples the queue is drained, outside of the clock.
"""

from __future__ import annotations

import functools
import itertools
import statistics
import time
import timeit
from collections.abc import Sequence
from typing import Any

from benchmarks.places import PEERS, TITLES, Place
from benchmarks.report import Figure, Result, spread
from benchmarks.worker import Failed, Worker, in_turn

OPS = {
    "x + y": "x + y",
    "x + 1": "x + 1",
    "x + changing scalar": "x + next(scalars)",
    "64x64 matmul": "w @ w",
}
VIEWS = {"t": "x.t()", "view": "x.view(16)", "select": "x.select(0, 1)", "x[1]": "x[1]"}
JUDGED = ("x + y", "x + 1", "64x64 matmul", "t", "view", "select")
MOST_OP_US, MOST_VIEW_US = 10.0, 1.5
LEAST_RATIO = {"torch_xla": 5.0, "torchax": 15.0}


@functools.lru_cache(maxsize=1)
def operands(device: str) -> dict[str, Any]:
    """The names that statements use: x and y are 4x4, w is 64x64."""
    import torch

    x, y, w = torch.ones(4, 4), torch.ones(4, 4), torch.full((64, 64), 0.01)
    return {"x": x.to(device), "y": y.to(device), "w": w.to(device), "scalars": itertools.count(0.5)}


def sample(place: Place, statements: dict[str, str], number: int) -> dict[str, float]:
    """Microseconds of this thread's CPU time for one execution of each statement, the mean of `number`."""
    found = {}
    for name, statement in statements.items():
        timer = timeit.Timer(statement, globals=operands(place.device), timer=time.thread_time)
        found[name] = 1e6 * timer.timeit(number) / number
        place.synchronize()
    return found


def run(group: str, workers: Sequence[Worker], missing: dict[str, str], rounds: int, quick: bool) -> Result:
    """Measure `group`, "ops" or "views"; `missing` says for each peer without a worker why it has none."""
    statements, limit = (OPS, MOST_OP_US) if group == "ops" else (VIEWS, MOST_VIEW_US)
    number = 20 if quick else 1000
    workers, unusable = _warm(workers, statements, number)
    missing = missing | unusable
    samples = in_turn(workers, rounds, "benchmarks.ops:sample", statements=statements, number=number)
    medians = {
        place: {name: statistics.median(found[name] for found in founds) for name in statements}
        for place, founds in samples.items()
    }
    figures = [
        Figure(group, f"{name} on tpu, CPU time of the enqueue", medians["tpu"][name], "us", _limit(name, limit))
        for name in statements
    ]
    figures += [
        Figure(group, f"ratio tpu / CPU eager, {n}", medians["tpu"][n] / medians["cpu"][n], "x") for n in statements
    ]
    for peer in PEERS:
        for name in statements:
            least = LEAST_RATIO[peer] if group == "ops" and name in JUDGED else None
            ratio = medians[peer][name] / medians["tpu"][name] if peer in medians else None
            label = f"ratio {TITLES[peer]} / tpu, {name}"
            figures.append(Figure(group, label, ratio, "x", least, at_least=True, note=missing.get(peer, "")))
    names = [*medians, *(peer for peer in PEERS if peer in missing)]
    rows = [
        [name, *(spread((found[name] for found in samples[p]), "us") if p in samples else missing[p] for p in names)]
        for name in statements
    ]
    return Result(figures, ["one enqueue", *(TITLES[name] for name in names)], rows, samples)


def _warm(workers: Sequence[Worker], statements: dict[str, str], number: int) -> tuple[list[Worker], dict[str, str]]:
    """Run everything once; those that can, and why the other peers cannot."""
    able, unable = [], {}
    for worker in workers:
        try:
            worker.call("benchmarks.ops:sample", statements=statements, number=number)
            able.append(worker)
        except Failed as error:
            if worker.place not in PEERS:
                raise
            unable[worker.place] = error.brief
    return able, unable


def _limit(name: str, limit: float) -> float | None:
    return limit if name in JUDGED else None
