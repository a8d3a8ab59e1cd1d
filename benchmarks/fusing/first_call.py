"""What a script pays before it is warm when its ops are fused in the background, beside strict mode.

In each round both modes start with an empty cache of their own, and the fused one then runs again in a fresh process.
A first call ends with reading its result. Before warm calls are timed, the compiler in the background has finished.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Mapping
from typing import Any

from benchmarks import minilm
from benchmarks.fusing.turns import MOST_DIFFERENCE
from benchmarks.report import Figure, Result, ratio, spread
from benchmarks.startup import PARTS, timed
from benchmarks.worker import Worker

GROUP = "fuse-startup"
MOST_COLD, MOST_WARM = 1.3, 2.0
MOST_ROUNDS = 3
MODES = {
    "fused": {"TORCH_TPU_DEFER_AND_FUSE": "1", "TORUS_FUSING": "background"},
    "strict": {"TORCH_TPU_DEFER_AND_FUSE": "0"},
}
COLUMNS = {
    "fused, empty": "fused, cache empty",
    "strict, empty": "strict, cache empty",
    "fused, filled": "fused, cache filled",
    "strict, filled": "strict, cache filled",
    "cpu": "CPU eager",
}
PHASES = ("setup", "first", "second", "warm")
_SETTLING = 5
"""Calls after which nothing new is compiled any more, once what they asked for is there."""


def script(_: None, device: str, parts: list[str], repeats: int) -> dict[str, Any]:
    """Run the script in this fresh process; seconds of each phase, what was read, and what the device counted."""
    import torch

    if device == "tpu":
        import torus  # noqa: F401  makes the device exist
    found = {part: _phases(part, device, repeats) for part in parts}
    return found | {"counters": dict(torch.tpu.counters()) if device == "tpu" else None}


def _phases(part: str, device: str, repeats: int) -> dict[str, float]:
    work, setup = timed(lambda: PARTS[part](device))
    result, first = timed(work)
    _, second = timed(work)
    for _ in range(_SETTLING):
        work()
        _settle(device)
    warm = statistics.median(timed(work)[1] for _ in range(repeats))
    return {"setup": setup, "first": first, "second": second, "warm": warm, "read": float(result.flatten()[0])}


def _settle(device: str) -> None:
    if device == "tpu":
        from torus.backend.eager import fuse

        fuse.wait_for_compiles(None)


def run(rounds: int, quick: bool) -> Result:
    """Measure; quick: the training step only."""
    parts = ["MLP step"] if quick or minilm.missing() else ["MLP step", "MiniLM forward"]
    repeats = 3 if quick else 20

    def fresh(device: str, variables: Mapping[str, str]) -> dict[str, Any]:
        with Worker(None, variables=variables) as worker:
            return worker.call("benchmarks.fusing.first_call:script", device=device, parts=parts, repeats=repeats)

    samples: dict[str, list[dict[str, Any]]] = {column: [] for column in COLUMNS}
    for _ in range(1 if quick else min(rounds, MOST_ROUNDS)):
        with tempfile.TemporaryDirectory(prefix="torus-benchmark-") as directory:
            for state in ("empty", "filled"):
                for mode, variables in MODES.items():
                    cache = {
                        "TORUS_CACHE_DIR": os.path.join(directory, mode),
                        "TORCH_TPU_TIER2_COMPILATION_CACHE": "default",
                    }
                    samples[f"{mode}, {state}"].append(fresh("tpu", variables | cache))
        samples["cpu"].append(fresh("cpu", {}))
    return _result(parts, samples)


def _result(parts: list[str], samples: dict[str, list[dict[str, Any]]]) -> Result:
    def times(column: str, part: str, phase: str) -> list[float]:
        return [found[part][phase] for found in samples[column]]

    figures, rows = [], []
    for part in parts:
        cold, strict = times("fused, empty", part, "first"), times("strict, empty", part, "first")
        figures.append(ratio(GROUP, f"ratio fused / strict, first call, cache empty, {part}", cold, strict, MOST_COLD))
        for column, limit in (("fused, filled", MOST_WARM), ("strict, filled", None), ("cpu", None)):
            name = f"ratio first / warm call, {part}, {COLUMNS[column]}"
            figures.append(ratio(GROUP, name, times(column, part, "first"), times(column, part, "warm"), limit))
        figures.append(_difference(part, samples))
        rows += [
            [f"{part}, {phase}", *(spread([1e3 * s for s in times(c, part, phase)], "ms") for c in COLUMNS)]
            for phase in PHASES
        ]
    most = max(found["counters"]["compiles"] for found in samples["fused, filled"])
    figures.append(Figure(GROUP, "compiles in a second process, fused", most, "", 0.0))
    if len(parts) == 1 and minilm.missing():
        name = "ratio first / warm call, MiniLM forward, fused, cache filled"
        figures.append(Figure(GROUP, name, None, "x", MOST_WARM, note=minilm.missing()))
    return Result(figures, ["fresh process", *COLUMNS.values()], rows, samples)


def _difference(part: str, samples: dict[str, list[dict[str, Any]]]) -> Figure:
    """What the first call gave, against CPU eager."""
    expected = samples["cpu"][0][part]["read"]
    worst = max(abs(found[part]["read"] / expected - 1) for column in samples.values() for found in column)
    return Figure(GROUP, f"largest difference of the first result from CPU eager's, {part}", worst, "", MOST_DIFFERENCE)
