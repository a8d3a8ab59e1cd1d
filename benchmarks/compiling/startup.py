"""What the first compiled call costs in a fresh process: with the cache empty, and filled; beside Dynamo's own time.

Dynamo's own time is that of the backend "aot_eager_decomp_partition" on the CPU: it traces and partitions the same
model and compiles nothing.
"""

from __future__ import annotations

import statistics
import tempfile
from typing import Any

from benchmarks.report import Figure, Result
from benchmarks.startup import timed
from benchmarks.worker import Worker

GROUP = "compile-startup"
MOST_FILLED = 1.5
MOST_ROUNDS = 3
COLUMNS = {"empty": "cache empty", "filled": "cache filled", "dynamo": "tracing only"}

_COMPILED = {"device": "tpu", "backend": "tpu"}
_WHERE = {"dynamo": {"device": "cpu", "backend": "aot_eager_decomp_partition"}}


def script(_: None, device: str, backend: str) -> dict[str, float]:
    """Seconds of the first call of a compiled model in this fresh process, forward and backward; compiles."""
    import torch

    import torus  # noqa: F401  makes the device exist
    from benchmarks import steps

    torch.manual_seed(0)
    model, x, y = steps.gpt()
    model, x, y = model.to(device), x.to(device), y.to(device)
    torch.ones(1, device=device).cpu()
    compiled = torch.compile(lambda x, y: torch.nn.functional.cross_entropy(model(x), y), backend=backend)

    def step() -> Any:
        loss = compiled(x, y)
        loss.backward()
        return loss.cpu()

    _, first = timed(step)
    return {"first": first, "compiles": torch.tpu.counters()["compiles"]}


def run(rounds: int, quick: bool) -> Result:
    """Measure."""
    samples: dict[str, list[dict[str, float]]] = {column: [] for column in COLUMNS}
    for _ in range(1 if quick else min(rounds, MOST_ROUNDS)):
        with tempfile.TemporaryDirectory(prefix="torus-benchmark-") as directory:
            for column in COLUMNS:
                with Worker(None, variables={"TORUS_CACHE_DIR": directory}) as worker:
                    found = worker.call("benchmarks.compiling.startup:script", **_WHERE.get(column, _COMPILED))
                samples[column].append(found)
    medians = {column: statistics.median(one["first"] for one in found) for column, found in samples.items()}
    rows = [["tiny GPT, forward and backward", *(f"{medians[column]:.2f} s" for column in COLUMNS)]]
    compiles = max(one["compiles"] for one in samples["filled"])
    figures = [
        Figure(
            GROUP,
            "ratio first call, cache filled / tracing only",
            medians["filled"] / medians["dynamo"],
            "x",
            MOST_FILLED,
        ),
        Figure(GROUP, "ratio first call, cache empty / tracing only", medians["empty"] / medians["dynamo"], "x"),
        Figure(GROUP, "programs compiled with the cache filled", compiles, "", 0.0),
    ]
    return Result(figures, [GROUP, *COLUMNS.values()], rows, samples)
