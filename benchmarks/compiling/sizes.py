"""Programs that five sizes need under ``dynamic=True``, and whether their values are right."""

from __future__ import annotations

import copy
from typing import Any

from benchmarks.places import Place
from benchmarks.report import Figure, Result
from benchmarks.worker import Worker

GROUP = "compile-sizes"
SIZES = (3, 7, 20, 50, 33)
MOST_PROGRAMS, MOST_DIFFERENCE = 3, 1e-5


def count(place: Place) -> dict[str, Any]:
    """Compiles after each size of an attention block's batch of sequences, and the largest difference from CPU."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    compiled = torch.compile(copy.deepcopy(model).to(place.device), backend="tpu", dynamic=True)
    counts, worst = [], 0.0
    before = torch.tpu.counters()["compiles"]
    for size in SIZES:
        x = torch.randn(2, size, 32)
        with torch.no_grad():
            worst = max(worst, float((compiled(x.to(place.device)).cpu() - model(x)).abs().max()))
        counts.append(torch.tpu.counters()["compiles"] - before)
    return {"programs": counts, "difference": worst}


def run(quick: bool) -> Result:
    """Measure, with nothing in the cache."""
    with Worker("tpu_compiled", variables={"TORCH_TPU_TIER2_COMPILATION_CACHE": "disabled"}) as worker:
        found = worker.call("benchmarks.compiling.sizes:count")
    rows = [["programs after each size", ", ".join(map(str, found["programs"]))]]
    figures = [
        Figure(GROUP, f"programs for {len(SIZES)} sizes", found["programs"][-1], "", MOST_PROGRAMS),
        Figure(GROUP, "largest difference from CPU eager", found["difference"], "", MOST_DIFFERENCE),
    ]
    return Result(figures, [f"sizes {', '.join(map(str, SIZES))}", "tpu, torch.compile(dynamic=True)"], rows, found)
