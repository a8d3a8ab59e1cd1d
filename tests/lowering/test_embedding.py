"""Embedding tables and bags against CPU PyTorch."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.lowering.agree import agrees, unexercised
from tests.lowering.evaluate import evaluate
from torus.backend.lowering import embedding

pytestmark = pytest.mark.slow

aten = torch.ops.aten


def randn(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(0))


TABLE = randn(10, 4)
WORDS = torch.tensor([[1, 2, 2], [9, 0, 1]])
FLAT, OFFSETS, BAG = (
    torch.tensor([1, 2, 2, 9, 0, 1, 5]),
    torch.tensor([0, 3, 3, 5]),
    torch.tensor([0, 0, 0, 2, 2, 3, 3]),
)
SUM, MEAN, MAX = 0, 1, 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lookup(dtype: torch.dtype) -> None:
    agrees(aten.embedding.default, TABLE.to(dtype), WORDS, 2)
    agrees(aten.embedding.default, TABLE.to(dtype), WORDS.int())


@pytest.mark.parametrize("by_frequency", [False, True])
@pytest.mark.parametrize("padding", [-1, 2])
def test_gradient_of_the_table(by_frequency: bool, padding: int) -> None:
    agrees(aten.embedding_dense_backward.default, randn(2, 3, 4), WORDS, 10, padding, by_frequency)


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, math.inf])
def test_renorm(norm_type: float) -> None:
    agrees(aten.embedding_renorm.default, TABLE, WORDS, 1.0, norm_type)


BAGS = [(mode, padding, last) for mode, padding, last in itertools.product([SUM, MEAN, MAX], [-1, 2], [False, True])]


@pytest.mark.parametrize(("mode", "padding", "last"), BAGS)
def test_bags_and_their_gradient(mode: int, padding: int, last: bool) -> None:
    offsets = torch.tensor([0, 3, 3, 5, 7]) if last else OFFSETS
    args = TABLE, FLAT, offsets, False, mode, False, None, last, padding
    result, _, sizes, maxima = aten._embedding_bag(*args)
    for op in (aten._embedding_bag.default, aten._embedding_bag_forward_only.default):
        actual = evaluate(op, *args)
        torch.testing.assert_close(actual[0], result)
        if mode == MAX:
            assert actual[3].equal(maxima)
    g = randn(4, 4)
    agrees(aten._embedding_bag_dense_backward.default, g, FLAT, BAG, sizes, maxima, 10, False, mode, None, padding)


@pytest.mark.parametrize("mode", [SUM, MEAN, MAX])
@pytest.mark.parametrize("told", [True, False], ids=["bag of each", "only offsets"])
def test_gradient_of_bags_as_autograd_asks_for_it(mode: int, told: bool) -> None:
    g = randn(4, 4)
    _, bag, sizes, maxima = aten._embedding_bag(TABLE, FLAT, OFFSETS, False, mode)
    args = (FLAT, OFFSETS, bag if told else bag[:0], sizes, maxima, 10, False, mode, False, None)
    expected = aten._embedding_bag_backward(g, FLAT, OFFSETS, BAG, *args[3:])
    agrees(aten._embedding_bag_backward.default, g, *args, reference=expected)


def test_a_sparse_gradient_is_left_to_the_cpu() -> None:
    empty = torch.empty(0, dtype=torch.int64)
    args = (randn(4, 4), FLAT, OFFSETS, BAG, empty, empty, 10, False, SUM, True, None)
    with pytest.raises(NotImplementedError):
        embedding.embedding_bag_backward(*args)


@pytest.mark.parametrize("padding", [-1, 2])
def test_weighted_bags(padding: int) -> None:
    weights, g = randn(7), randn(4, 4)
    args = TABLE, FLAT, OFFSETS, False, SUM, False, weights, False, padding
    result, _, sizes, maxima = aten._embedding_bag(*args)
    torch.testing.assert_close(evaluate(aten._embedding_bag.default, *args)[0], result)
    agrees(aten._embedding_bag_dense_backward.default, g, FLAT, BAG, sizes, maxima, 10, False, SUM, weights, padding)
    agrees(aten._embedding_bag_per_sample_weights_backward.default, g, TABLE, FLAT, OFFSETS, BAG, SUM, padding)


def test_gradient_scaled_by_frequency_is_the_lookup_s() -> None:
    """The CPU kernel for bags divides by the counts of other rows; the one for lookups is right."""
    g = randn(4, 4)
    empty = torch.empty(0, dtype=torch.int64)
    actual = evaluate(aten._embedding_bag_dense_backward.default, g, FLAT, BAG, empty, empty, 10, True, SUM, None)
    torch.testing.assert_close(actual, aten.embedding_dense_backward(g[BAG], FLAT, 10, -1, True))


def test_bag_gradient_agrees_with_autograd() -> None:
    table = TABLE.double().requires_grad_()
    F.embedding_bag(FLAT, table, OFFSETS, mode="mean").backward(randn(4, 4).double())
    sizes = torch.tensor([3, 0, 2, 2])
    empty = torch.empty(0, dtype=torch.int64)
    g = randn(4, 4)
    actual = evaluate(aten._embedding_bag_dense_backward.default, g, FLAT, BAG, sizes, empty, 10, False, MEAN, None)
    torch.testing.assert_close(actual.double(), table.grad, rtol=1e-6, atol=1e-6)


def test_every_rule_is_exercised() -> None:
    ops = [aten.embedding, aten.embedding_dense_backward, aten.embedding_renorm, aten._embedding_bag]
    ops += [aten._embedding_bag_forward_only, aten._embedding_bag_dense_backward]
    ops += [aten._embedding_bag_per_sample_weights_backward, aten._embedding_bag_backward]
    assert not unexercised(embedding, [op.default for op in ops])


BAGS = [
    (aten._embedding_bag, torch.float32, SUM, False),
    (aten._embedding_bag, torch.float32, SUM, True),
    (aten._embedding_bag, torch.float64, SUM, False),
    (aten._embedding_bag, torch.float32, MEAN, True),
    (aten._embedding_bag, torch.float32, MAX, True),
    (aten._embedding_bag_forward_only, torch.float32, SUM, True),
]


@pytest.mark.parametrize(("op", "dtype", "mode", "last"), BAGS)
def test_bags_are_told_as_on_the_cpu(device: str, op: Any, dtype: torch.dtype, mode: int, last: bool) -> None:
    offsets = torch.cat([OFFSETS, torch.tensor([len(FLAT)])]) if last else OFFSETS

    def called(where: str) -> Any:
        return op(TABLE.to(where, dtype), FLAT.to(where), offsets.to(where), False, mode, False, None, last)

    torch.testing.assert_close(called(device), called("cpu"), check_device=False)
