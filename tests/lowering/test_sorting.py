"""Sorting, selection and searching against CPU PyTorch, with NaN, signed zeros and ties."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.lowering.agree import agrees, unexercised
from tests.lowering.evaluate import evaluate
from tests.lowering.test_kernels import NAMED
from torus.backend.lowering import sorting

aten = torch.ops.aten
NAN, INF = math.nan, math.inf
INTS = [torch.int64, torch.int32, torch.uint8, torch.int8]
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def rows(dtype: torch.dtype) -> torch.Tensor:
    """Ties in every column; NaN and infinities where the dtype has them."""
    x = torch.randn(2, 9, 3, generator=torch.Generator().manual_seed(0)) * 3
    if dtype.is_floating_point:
        x[0, 3, 2], x[1, :3, 0], x[1, 4, 1], x[0, 5, 1] = NAN, NAN, -INF, INF
    return x.round().abs().to(dtype) if dtype is torch.uint8 else x.round().to(dtype)


def agrees_up_to_ties(op: Any, x: torch.Tensor, *args: Any, ax: int = 1) -> None:
    """Values as on the CPU, and indices that lead to them: PyTorch leaves open which of equals is named."""
    values, indices = evaluate(op, x, *args)
    torch.testing.assert_close(values, op(x, *args)[0], equal_nan=True)
    keeps = indices.dim() == x.dim()
    found = x.gather(ax, indices if keeps else indices.unsqueeze(ax))
    torch.testing.assert_close(found if keeps else found.squeeze(ax), values, equal_nan=True)


@pytest.mark.parametrize("dtype", [*INTS, *FLOATS, torch.bool])
@pytest.mark.parametrize("descending", [False, True])
def test_stable_sort(dtype: torch.dtype, descending: bool) -> None:
    agrees(aten.sort.stable, rows(dtype), stable=True, dim=1, descending=descending)


def test_zeros_are_equal_whatever_their_sign() -> None:
    zeros = torch.tensor([0.0, -0.0, 0.0, -0.0])
    for descending in (False, True):
        values, indices = evaluate(aten.sort.stable, zeros, stable=True, descending=descending)
        assert indices.tolist() == [0, 1, 2, 3]
        assert torch.signbit(values).tolist() == [False, True, False, True]


def test_extreme_integers() -> None:
    x = torch.tensor([2**63 - 1, -(2**63), 0, -1])
    agrees(aten.sort.default, x)
    agrees(aten.sort.default, x, -1, True)


def test_sort_without_elements_or_dimensions() -> None:
    agrees(aten.sort.default, torch.tensor(3.0))
    agrees(aten.sort.default, torch.empty(0, 3), 0)


@pytest.mark.parametrize("dtype", [*INTS, *FLOATS])
@pytest.mark.parametrize("largest", [False, True])
def test_topk(dtype: torch.dtype, largest: bool) -> None:
    agrees_up_to_ties(aten.topk.default, rows(dtype), 4, 1, largest)


def test_topk_of_everything_nothing_and_a_number() -> None:
    agrees_up_to_ties(aten.topk.default, rows(torch.float32), 9, 1)
    agrees(aten.topk.default, rows(torch.float32), 0, 1)
    agrees(aten.topk.default, torch.tensor(3.0), 1, 0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.float64, torch.bfloat16])
def test_order_statistics(dtype: torch.dtype) -> None:
    x = rows(dtype)
    agrees_up_to_ties(aten.kthvalue.default, x, 3, 1)
    agrees_up_to_ties(aten.median.dim, x, 1)
    agrees_up_to_ties(aten.nanmedian.dim, x, 1, True)
    agrees(aten.median.default, x)
    agrees(aten.nanmedian.default, x)
    agrees_up_to_ties(aten.mode.default, x.nan_to_num(1) if dtype.is_floating_point else x, 1)


def test_order_statistics_of_numbers_and_nothing() -> None:
    one = torch.tensor(3.0)
    for op, *args in [(aten.kthvalue.default, 1, 0), (aten.median.dim, 0), (aten.mode.default, 0)]:
        agrees(op, one, *args)
    agrees(aten.median.default, torch.tensor([]))
    agrees(aten.median.dim, torch.tensor([[1.0, NAN, 3.0, NAN], [5, 2, 2, NAN]]), 1)
    agrees(aten.mode.default, torch.tensor([[1, 2, 3, 2, 3]]), 1)


BOUNDS = torch.tensor([1.0, 2.0, 3.0])
SORTED = torch.randn(3, 17, generator=torch.Generator().manual_seed(1)).sort(1)[0]
WANTED = torch.randn(3, 5, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("right", [False, True])
def test_searches(right: bool) -> None:
    agrees(aten.bucketize.Tensor, torch.tensor([NAN, 1.0, 2.5, 3.0, 9, -1]), BOUNDS, right=right)
    agrees(aten.bucketize.Scalar, 2, BOUNDS, right=right, out_int32=True)
    agrees(aten.bucketize.Scalar, 2.5, torch.tensor([1, 2, 3]), right=right)
    agrees(aten.searchsorted.Tensor, SORTED, WANTED, right=right)
    agrees(aten.searchsorted.Tensor, SORTED[0], WANTED, side="right" if right else "left")
    agrees(aten.searchsorted.Tensor, SORTED[:, :16].double(), SORTED[:, 3:9].double(), right=right)
    agrees(aten.searchsorted.Scalar, SORTED[0], 0, right=right)


def test_search_through_a_sorter_and_in_nothing() -> None:
    shuffled = SORTED.flip(1)
    agrees(aten.searchsorted.Tensor, shuffled, WANTED, sorter=shuffled.argsort(1))
    agrees(aten.bucketize.Tensor, torch.tensor([1.5]), torch.empty(0))


def test_nan_belongs_after_every_boundary() -> None:
    assert evaluate(aten.bucketize.Tensor, torch.tensor(NAN), BOUNDS).item() == 3


def test_every_rule_is_exercised() -> None:
    ops = [aten.sort.default, aten.sort.stable, aten.topk.default, aten.kthvalue.default, aten.mode.default]
    ops += [aten.median.default, aten.median.dim, aten.nanmedian.default, aten.nanmedian.dim]
    ops += [aten.searchsorted.Tensor, aten.searchsorted.Scalar, aten.bucketize.Tensor, aten.bucketize.Scalar]
    assert not unexercised(sorting, [*NAMED, *ops])
