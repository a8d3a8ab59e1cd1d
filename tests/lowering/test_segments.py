"""Reductions over runs, and their gradients, against CPU PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.lowering.agree import agrees

aten = torch.ops.aten

X = torch.tensor([[1.0, 2.0], [3.0, 4.0], [0.0, 6.0], [7.0, float("nan")], [0.0, 5.0]], dtype=torch.float64)
RUNS: dict[str, dict[str, Any]] = {
    "lengths": {"lengths": torch.tensor([2, 0, 3])},
    "offsets": {"offsets": torch.tensor([0, 2, 2, 5])},
}


@pytest.mark.parametrize("initial", [None, 10.0])
@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "max", "min"])
def test_runs_and_gradient(reduce: str, runs: str, initial: float | None) -> None:
    options = {"initial": initial, **RUNS[runs]}
    output = aten.segment_reduce(X, reduce, **options)
    agrees(aten.segment_reduce.default, X, reduce, reference=output, **options)
    agrees(aten._segment_reduce_backward.default, output.nan_to_num().cos(), output, X, reduce, **options)


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "max", "min"])
def test_each_row_has_runs_of_its_own(reduce: str) -> None:
    lengths = torch.tensor([[2, 0, 3], [1, 1, 3]])
    data = X.mT.float().contiguous()
    expected = torch.segment_reduce(data, reduce, lengths=lengths, axis=1, unsafe=True)
    agrees(aten.segment_reduce.default, data, reduce, lengths=lengths, axis=1, unsafe=True, reference=expected)
