"""Pieces of PyTorch's own kernels that have names in ATen: on the device as on the CPU, what they write included."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from tests.lowering.agree import label, name
from torus.backend.lowering.registry import RULES

aten = torch.ops.aten


def randn(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed))


FACTOR = torch.linalg.cholesky(randn(2, 4, 4) @ randn(2, 4, 4).mT + 4 * torch.eye(4))
IMAGE, FILTERS, BIAS = randn(2, 3, 8, 9), randn(4, 3, 3, 2, seed=1), randn(4, seed=2)
GRAD = aten._slow_conv2d_forward(IMAGE, FILTERS, [3, 2], None, [2, 1], [1, 0]).cos()
TIES = torch.tensor([[1.0, 3.0, 3.0, float("nan"), 2.0], [5.0, 4.0, 5.0, 1.0, 9.0]])
ROWS = torch.tensor([0, 0, 2, 2, 2, 4])
STARTS = torch.tensor([[0, 1, 3], [0, 0, 3]])
COLUMNS = torch.tensor([[1, 0, 2], [0, 1, 2]])
INT8 = torch.randint(-128, 128, (8, 32), generator=torch.Generator().manual_seed(0), dtype=torch.int8)
CASES: list[Any] = [
    (aten._cholesky_solve_helper.default, randn(2, 4, 3), FACTOR, False),
    (aten._cholesky_solve_helper.default, randn(2, 4, 3), FACTOR.mT.contiguous(), True),
    (aten._compute_linear_combination.default, randn(3, 2, 2), randn(4, 3, seed=1)),
    (aten._transform_bias_rescale_qkv.default, randn(2, 3, 24), randn(24, seed=1), 2),
    (aten._weight_int8pack_mm.default, randn(5, 32), INT8, randn(8, seed=1)),
    (aten.batch_norm_update_stats.default, randn(6, 4, 2) + 7, torch.zeros(4), torch.ones(4), 0.1),
    (aten.batch_norm_update_stats.default, randn(6, 4), None, None, 0.1),
    (aten.slow_conv_dilated2d.default, IMAGE, FILTERS, [3, 2], BIAS, [2, 1], [1, 0], [2, 2]),
    (aten.slow_conv_dilated3d.default, randn(1, 3, 5, 5, 5), randn(2, 3, 2, 2, 2), [2, 2, 2], None),
    (aten._slow_conv2d_backward.output_mask, GRAD, IMAGE, FILTERS, [3, 2], [2, 1], [1, 0], [True, True, True]),
    (aten._cummax_helper.default, TIES, torch.zeros(2, 5), torch.zeros(2, 5, dtype=torch.int64), 1),
    (aten._cummin_helper.default, TIES, torch.zeros(2, 5), torch.zeros(2, 5, dtype=torch.int64), 0),
    (aten._jagged_to_padded_dense_forward.default, randn(5, 2), [torch.tensor([0, 2, 2, 5])], [4], 1.5),
    (aten._jagged_to_padded_dense_forward.default, randn(5, 2), [torch.tensor([0, 4, 5])], [3]),
    (aten._convert_indices_from_coo_to_csr.default, ROWS, 5),
    (aten._convert_indices_from_coo_to_csr.default, ROWS[:0], 3),
    (aten._convert_indices_from_csr_to_coo.default, STARTS[0], COLUMNS[0]),
    (aten._convert_indices_from_csr_to_coo.default, STARTS[0], COLUMNS[0], {"transpose": True, "out_int32": True}),
    (aten._convert_indices_from_csr_to_coo.default, STARTS, COLUMNS),
]
NAMED = {case[0] for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=label)
def test_results_and_what_is_written(case: Any, device: str) -> None:
    op, *arguments = case
    options = arguments.pop() if isinstance(arguments[-1], dict) else {}
    assert name(op) in RULES
    there = pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), arguments)
    here = pytree.tree_map_only(torch.Tensor, torch.clone, arguments)
    actual, expected = op(*there, **options), op(*here, **options)
    if actual is not None:
        torch.testing.assert_close(pytree.tree_map(torch.Tensor.cpu, actual), expected, rtol=1e-5, atol=1e-5)
    moved = pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, there)
    torch.testing.assert_close(moved, here, rtol=1e-5, atol=1e-5, equal_nan=True)
