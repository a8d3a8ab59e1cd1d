"""Writing by index against CPU PyTorch."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.lowering.agree import Case, agrees, label, run, unexercised
from tests.lowering.evaluate import evaluate
from tests.lowering.test_indexing import INDICES, MASK, ROW, X
from torus.backend.lowering import scatter

aten = torch.ops.aten


def randn(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(2))


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values)


PICKS = torch.randint(0, 5, (3, 7, 6, 2), generator=torch.Generator().manual_seed(1))
DISTINCT = torch.tensor([4, 0, 2])[None, :, None, None].expand(3, 3, 5, 1)
SOURCE = randn(3, 7, 6, 2)
ROWS = randn(4, 3, 6, 3)
AT = torch.tensor([0, 0, 4])
TO_FILL = torch.zeros(1, 4)

CASES: list[Case] = [
    *[(aten.index_put.default, X, i, randn(*aten.index(X, i).shape), True) for i in INDICES],
    *[(aten.index_put.default, X, i, torch.tensor(5.0)) for i in INDICES],
    (aten.index_put.default, torch.zeros(4, dtype=torch.bool), [tensor(0, 0, 1)], torch.tensor(True), True),
    (aten.index_put.default, torch.zeros(4, dtype=torch.int64), [tensor(0, 0, 1)], tensor(1, 2, 3), True),
    (aten.index_put.default, torch.zeros(4, dtype=torch.bfloat16), [tensor(2, 1)], tensor(1, 2).bfloat16()),
    (aten._unsafe_index_put.default, X, [None, AT], torch.tensor(1.5), True),
    (aten._unsafe_masked_index_put_accumulate.default, ROW, MASK, [tensor(0, 99, -1).expand(2, 3)], randn(2, 3)),
    (aten.put.default, X, tensor(0, -1, 100), tensor(1.0, 2.0, 3.0)),
    (aten.put.default, X, tensor(0, -1, 0), tensor(1.0, 2.0, 3.0), True),
    (aten.index_add.default, X, 1, AT, ROWS, {"alpha": 2.5}),
    (aten.index_add.default, torch.tensor(1.0), 0, tensor(0), torch.tensor(2.0)),
    (aten.index_add.default, tensor(1, 2, 3), 0, tensor(0, 0), tensor(2, 3), {"alpha": 2}),
    (aten.index_copy.default, X, -1, tensor(2, 0), randn(4, 5, 6, 2)),
    (aten.index_fill.int_Scalar, TO_FILL, 1, tensor(1, -1), 7.0),
    (aten.index_fill.int_Scalar, tensor(1, 2), 0, tensor(1), 7),
    (aten.index_fill.int_Tensor, X, 1, tensor(1, -1), torch.tensor(7.0)),
    (aten.scatter.src, X, 1, DISTINCT, SOURCE[:, :, :5]),
    (aten.scatter.value, X, 1, PICKS, 3.0),
    (aten.scatter.value, tensor(1, 2, 3), 0, tensor(1), 9),
    (aten.scatter.reduce, X, 1, PICKS, SOURCE, {"reduce": "multiply"}),
    (aten.scatter.value_reduce, X, 1, PICKS, 2.0, {"reduce": "add"}),
    (aten.scatter_add.default, X, 1, PICKS, SOURCE),
    (aten.scatter_add.default, X.double(), 1, PICKS[:0], SOURCE.double()),
    (aten.scatter_add.default, torch.tensor(1.0), 0, torch.tensor(0), torch.tensor(2.0)),
    (aten.scatter_add.default, tensor(False, False), 0, tensor(1), tensor(True)),
    (aten.scatter_reduce.two, tensor(-7), 0, tensor(0), tensor(0), "mean"),
    (aten.masked_scatter.default, X, randn(5, 6, 3) > 0, randn(500)),
    (aten.select_scatter.default, X, randn(4, 6, 3), 1, -2),
    (aten.select_backward.default, randn(4, 6, 3), [4, 5, 6, 3], 1, 3),
    (aten.slice_backward.default, randn(4, 2, 6, 3), [4, 5, 6, 3], 1, 1, 4, 2),
    (aten.slice_backward.default, randn(4, 2, 6, 3), [4, 5, 6, 3], 1, -2, 2**63 - 1, 1),
    (aten.slice_scatter.default, X, randn(4, 2, 6, 3), 1, 1, 4, 2),
    (aten.slice_scatter.default, X, randn(4, 2, 6, 3), 1, -2),
    (aten.slice_scatter.default, X, randn(4, 0, 6, 3), 1, 4, 2),
    (aten.diagonal_scatter.default, X, randn(4, 3, 5), 1, 1, 2),
    (aten.diagonal_backward.default, randn(4, 3, 4), [4, 5, 6, 3], -1, 1, 2),
]


@pytest.mark.parametrize("case", CASES, ids=label)
def test_writes(case: Case) -> None:
    run(case)


@pytest.mark.parametrize(
    ("reduce", "include_self"), [*itertools.product(["prod", "mean", "amax", "amin"], [True, False])]
)
def test_reductions(reduce: str, include_self: bool) -> None:
    agrees(aten.index_reduce.default, X, 1, AT, ROWS, reduce, include_self=include_self)
    agrees(aten.scatter_reduce.two, X, 1, PICKS, SOURCE, reduce, include_self=include_self)
    ints = tensor(1, -7, 3), 0, tensor(0, 0, 2), tensor(3, -8, 2)
    agrees(aten.scatter_reduce.two, *ints, reduce, include_self=include_self)


def test_sums_without_self_and_nan_in_maxima() -> None:
    agrees(aten.scatter_reduce.two, X, 1, PICKS, SOURCE, "sum", include_self=False)
    agrees(aten.scatter_reduce.two, tensor(0.0, 1.0), 0, tensor(0, 0, 1), tensor(1.0, float("nan"), 3.0), "amax")


def test_integer_mean_rounds_down() -> None:
    zeros, index = torch.zeros(1, dtype=torch.int64), tensor(0, 0)
    actual = evaluate(aten.scatter_reduce.two, zeros, 0, index, tensor(-3, -4), "mean", include_self=False)
    assert actual.tolist() == [-4]


def test_negative_index_fills_from_the_end() -> None:
    assert evaluate(aten.index_fill.int_Scalar, TO_FILL, 1, tensor(1, -1), 7.0).tolist() == [[0, 7, 0, 7]]


def test_repeated_half_precision_updates_add_up_in_float32() -> None:
    ones = torch.ones(1000, dtype=torch.bfloat16)
    index = torch.zeros(1000, dtype=torch.int64)
    assert evaluate(aten.scatter_add.default, ones[:1], 0, index, ones).item() == 1000


def test_index_put_impl_shares_the_rule() -> None:
    args = X, [None, AT], torch.tensor(1.5), True
    expected = aten.index_put(*args)
    agrees(aten._index_put_impl.default, *args, reference=expected)


def test_every_rule_is_exercised() -> None:
    ops = [aten.index_reduce.default, aten._index_put_impl.default]
    assert not unexercised(scatter, [*[case[0] for case in CASES], *ops])
