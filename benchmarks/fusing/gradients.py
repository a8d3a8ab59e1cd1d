"""Captum's integrated gradients of a small perceptron: the path, all gradients and the sum, from unmodified Captum.

CPU eager of the same call shows what Captum itself and PyTorch's autograd need on the host.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.fusing.turns import Case, measure
from benchmarks.places import Place
from benchmarks.report import Figure, Result
from benchmarks.worker import Worker

GROUP = "fuse-captum"
STEPS = 50
CASE = Case("integrated gradients, 50 steps", 3, least_speedup=5.0, most_programs=4.0)


def missing() -> str:
    """That Captum is not installed, if it is not."""
    return "" if importlib.util.find_spec("captum") else "captum is not installed"


def work(place: Place, _case: str, _quick: bool) -> Callable[[], Any]:
    """One call: attributions of 4 rows, 64 features each, through two hidden layers."""
    import torch
    from captum.attr import IntegratedGradients
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    x = torch.randn(4, 64).to(place.device)
    baseline = torch.zeros(4, 64).to(place.device)
    method = IntegratedGradients(model.eval().to(place.device))
    return lambda: method.attribute(x, baseline, target=1, n_steps=STEPS)


def run(workers: Sequence[Worker], rounds: int, quick: bool) -> Result:
    """Measure, where Captum is installed."""
    if missing():
        name = f"ratio strict / fused, {CASE.name}"
        return Result([Figure(GROUP, name, None, "x", CASE.least_speedup, at_least=True, note=missing())])
    return measure(GROUP, __name__, [CASE], workers, rounds, quick)
