"""What a script pays before it is warm: the same script in fresh processes that share one cache, empty at first.

The script imports, puts a model on the device (which starts the client), calls it once, then again: an MLP training
step, and a forward pass of MiniLM where it is installed. The loss or the embeddings are read at the end of each call. A
fresh process on the CPU shows what PyTorch's own first call costs.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks import minilm, steps
from benchmarks.report import Figure, Result, show
from benchmarks.worker import Worker

MOST_RATIO = 3.0
PHASES = ("setup", "first", "warm")


def script(_: None, device: str, parts: list[str], repeats: int) -> dict[str, Any]:
    """Run the script in this fresh process; seconds of each phase, and what the device counted."""
    start = time.perf_counter()
    import torch

    found: dict[str, Any] = {"import torch": time.perf_counter() - start}
    if device == "tpu":
        start = time.perf_counter()
        import torus  # noqa: F401  makes the device exist

        found["import torus"] = time.perf_counter() - start
    for part in parts:
        found[part] = _phases(PARTS[part], device, repeats)
    found["counters"] = dict(torch.tpu.counters()) if device == "tpu" else None
    return found


def _phases(prepare: Callable[[str], Callable[[], Any]], device: str, repeats: int) -> dict[str, float]:
    work, setup = timed(lambda: prepare(device))
    _, first = timed(work)
    return {"setup": setup, "first": first, "warm": statistics.median(timed(work)[1] for _ in range(repeats))}


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What `work` returns, and the seconds it took."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def _mlp(device: str) -> Callable[[], Any]:
    step = steps.training("MLP, AdamW", device)
    return lambda: step().cpu()


def _minilm(device: str) -> Callable[[], Any]:
    model, tokens = minilm.load()
    model, tokens = model.to(device), {name: value.to(device) for name, value in tokens.items()}
    return lambda: minilm.embed(model, tokens).cpu()


PARTS = {"MLP step": _mlp, "MiniLM forward": _minilm}


def run(rounds: int, quick: bool) -> Result:
    """One process with the cache empty, then `rounds` more with it full, each beside one on the CPU."""
    parts = ["MLP step"] if quick or minilm.missing() else ["MLP step", "MiniLM forward"]
    repeats = 3 if quick else 20
    with tempfile.TemporaryDirectory(prefix="torus-benchmark-") as directory:
        variables = {
            "TORUS_CACHE_DIR": os.path.join(directory, "cache"),
            "TORCH_TPU_TIER2_COMPILATION_CACHE": "default",
        }

        def fresh(device: str) -> dict[str, Any]:
            with Worker(None, variables=variables) as worker:
                return worker.call("benchmarks.startup:script", device=device, parts=parts, repeats=repeats)

        first, second, cpu = fresh("tpu"), [], []
        for _ in range(rounds):
            cpu.append(fresh("cpu"))
            second.append(fresh("tpu"))
    return _result(parts, first, second, cpu)


def _result(parts: list[str], first: dict[str, Any], second: list[dict[str, Any]], cpu: list[dict[str, Any]]) -> Result:
    most = max(found["counters"]["compiles"] for found in second)
    figures = [
        Figure("startup", "compiles in the first process, cache empty", first["counters"]["compiles"]),
        Figure("startup", "compiles in a second process", most, "", 0.0),
    ]
    for part in parts:
        for title, founds, limit in (("tpu, second process", second, MOST_RATIO), ("CPU eager", cpu, None)):
            ratio = statistics.median(found[part]["first"] / found[part]["warm"] for found in founds)
            figures.append(Figure("startup", f"ratio first / warm call, {part}, {title}", ratio, "x", limit))
    if "MiniLM forward" not in parts and minilm.missing():
        name = "ratio first / warm call, MiniLM forward, tpu, second process"
        figures.append(Figure("startup", name, None, "x", MOST_RATIO, note=minilm.missing()))
    rows = [
        [label, *(_median(founds, *path) for founds in ([first], second, cpu))]
        for label, path in [
            ("import torch", ("import torch",)),
            ("import torus after it", ("import torus",)),
            *((f"{part}, {phase}", (part, phase)) for part in parts for phase in PHASES),
        ]
    ]
    samples = {"first": first, "second": second, "cpu": cpu}
    return Result(figures, ["seconds", "tpu, first process", "tpu, second process", "CPU eager"], rows, samples)


def _median(founds: list[dict[str, Any]], *path: str) -> str:
    values = []
    for found in founds:
        value: Any = found
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        values.append(value)
    return "-" if None in values else show(1e3 * statistics.median(values), "ms")
