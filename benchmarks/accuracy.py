"""How far embeddings of MiniLM on the device are from those on the CPU, float32 both.

The error is ``max|device - CPU| / max|CPU|``. The same for CPU float32 against CPU float64 shows what float32 itself
costs.
"""

from __future__ import annotations

from typing import Any

from benchmarks import minilm
from benchmarks.places import Place
from benchmarks.report import Figure, Result
from benchmarks.worker import Worker

MOST_ERROR = 1e-5
NAME = "MiniLM embeddings on tpu against CPU float32, max relative error"


def measure(place: Place) -> dict[str, float]:
    """Errors of the device and of the CPU in float32."""
    import torch

    model, tokens = minilm.load()
    with torch.no_grad():
        host = minilm.embed(model, tokens)
        exact = minilm.embed(model.double(), tokens)
        on_device = {name: value.to(place.device) for name, value in tokens.items()}
        device = minilm.embed(model.float().to(place.device), on_device).cpu()
    return {
        "device_against_cpu": _error(device, host),
        "device_against_float64": _error(device, exact),
        "cpu_against_float64": _error(host, exact),
    }


def _error(value: Any, reference: Any) -> float:
    value, reference = value.double(), reference.double()
    return float((value - reference).abs().max() / reference.abs().max())


def run() -> Result:
    """Measure in a process of its own; "not measured" where transformers or the weights are not installed."""
    if minilm.missing():
        return Result([Figure("accuracy", NAME, None, "", MOST_ERROR, note=minilm.missing())])
    with Worker("tpu") as worker:
        found = worker.call("benchmarks.accuracy:measure")
    figures = [
        Figure("accuracy", NAME, found["device_against_cpu"], "", MOST_ERROR),
        Figure("accuracy", "the same against CPU float64", found["device_against_float64"]),
        Figure("accuracy", "CPU float32 against CPU float64", found["cpu_against_float64"]),
    ]
    return Result(figures, samples=found)
