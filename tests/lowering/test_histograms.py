"""Histograms against CPU PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.lowering.agree import Case, label, run, unexercised
from tests.lowering.evaluate import evaluate
from torus.backend.lowering import histograms

aten = torch.ops.aten

X = torch.tensor([0.5, 1.0, 4.0, -1.0, float("nan"), 2.0, 2.5, 7.0])
FINITE = torch.tensor([[0.5, 1.0], [4.0, -1.0], [3.0, 2.0], [2.5, 7.0]])
EDGES = torch.tensor([-1.0, 0.5, 2.0, 4.0])
WEIGHT = torch.arange(1.0, 9.0)

CASES: list[Case] = [
    (aten.histc.default, X, 4, 0, 4),
    (aten.histc.default, X[:4].contiguous(), 5),
    (aten.histc.default, torch.ones(3), 4),
    (aten.histc.default, X.double(), 3, -1, 3),
    (aten.histogram.bins_tensor, X, EDGES),
    (aten.histogram.bins_tensor, X, EDGES, {"weight": WEIGHT, "density": True}),
    (aten.histogram.bin_ct, FINITE, 5),
    (aten.histogram.bin_ct, X.double(), 4, {"range": [0.0, 4.0], "weight": WEIGHT.double(), "density": True}),
    (aten.histogram.bin_ct, torch.ones(3), 4),
    (aten.histogram.bin_ct, torch.zeros(0), 4),
    (aten._histogramdd_from_bin_cts.default, FINITE, [2, 3]),
    (aten._histogramdd_from_bin_cts.default, FINITE, [2, 3], {"range": [0.0, 3.0, 0.0, 7.0], "density": True}),
    (aten._histogramdd_bin_edges.default, FINITE, [2, 3]),
    (aten._histogramdd_bin_edges.default, FINITE, [2, 3], {"range": [0.0, 3.0, 0.0, 7.0]}),
    (aten._histogramdd_from_bin_tensors.default, FINITE, [EDGES, EDGES + 3], {"weight": WEIGHT[:4]}),
]


@pytest.mark.parametrize("case", CASES, ids=label)
def test_agrees(case: Case) -> None:
    run(case)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_histogram_of_integers_counts_each(dtype: torch.dtype) -> None:
    experts = torch.tensor([3, 0, 0, 7, 7, 7, 5], dtype=dtype)
    counts: Any = evaluate(aten.histc.default, experts, 8, 0, 7)
    torch.testing.assert_close(counts, torch.bincount(experts, minlength=8).to(dtype))


def test_every_rule_has_a_case() -> None:
    assert not unexercised(histograms, [case[0] for case in CASES])
