"""What one eager op and one view cost the thread that calls it: CPU time of the enqueue, not of the work.

The operands live outside autograd. The statement runs in timeit's loop under the clock of the thread; the loop itself
costs about 0.02 us. Between samples the queue is drained, outside of the clock.
"""

from __future__ import annotations

import functools
import itertools
import time
import timeit
from collections.abc import Sequence
from typing import Any

from benchmarks.places import PEERS, TITLES, Place
from benchmarks.report import Figure, Result, median, ratio, spread
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

Times = dict[str, dict[str, list[float]]]
"""Place, then statement, then microseconds in each round."""


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
    """Measure `group`, "ops" or "views".

    `missing` says for each peer without a worker why it has none; peers that fail at these statements join it.
    """
    statements, number = OPS if group == "ops" else VIEWS, 20 if quick else 1000
    workers = _warm(workers, statements, number, missing)
    samples = in_turn(workers, rounds, "benchmarks.ops:sample", statements=statements, number=number)
    times = {place: {n: [found[n] for found in founds] for n in statements} for place, founds in samples.items()}
    figures = _against_targets(group, times) + [
        figure for peer in PEERS for figure in _against_peer(group, times, peer, missing.get(peer, ""))
    ]
    names = [*times, *(peer for peer in PEERS if peer in missing)]
    rows = [[n, *(spread(times[p][n], "us") if p in times else missing[p] for p in names)] for n in statements]
    return Result(figures, ["one enqueue", *(TITLES[name] for name in names)], rows, samples)


def _against_targets(group: str, times: Times) -> list[Figure]:
    most = MOST_OP_US if group == "ops" else MOST_VIEW_US
    tpu, cpu = times["tpu"], times["cpu"]
    return [
        *(
            median(group, f"{n} on tpu, CPU time of the enqueue", tpu[n], "us", most if n in JUDGED else None)
            for n in tpu
        ),
        *(ratio(group, f"ratio tpu / CPU eager, {n}", tpu[n], cpu[n]) for n in tpu),
    ]


def _against_peer(group: str, times: Times, peer: str, why_not: str) -> list[Figure]:
    figures = []
    for name, tpu in times["tpu"].items():
        label = f"ratio {TITLES[peer]} / tpu, {name}"
        least = LEAST_RATIO[peer] if group == "ops" and name in JUDGED else None
        if peer in times:
            figures.append(ratio(group, label, times[peer][name], tpu, least, at_least=True))
        else:
            figures.append(Figure(group, label, None, "x", least, at_least=True, note=why_not))
    return figures


def _warm(workers: Sequence[Worker], statements: dict[str, str], number: int, missing: dict[str, str]) -> list[Worker]:
    """Run everything once; those that can."""
    able = []
    for worker in workers:
        try:
            worker.call("benchmarks.ops:sample", statements=statements, number=number)
            able.append(worker)
        except Failed as error:
            if worker.place not in PEERS:
                raise
            missing[worker.place] = error.brief
    return able
