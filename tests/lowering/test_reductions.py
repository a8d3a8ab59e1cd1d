"""Reductions against CPU PyTorch."""

from __future__ import annotations

import math

import pytest
import torch

from tests.lowering.agree import Case, label, run, unexercised
from tests.lowering.evaluate import evaluate
from torus.backend.lowering import reductions

pytestmark = pytest.mark.slow

aten = torch.ops.aten
NAN, INF = math.nan, math.inf


def randn(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(0)).to(dtype)


X = randn(3, 4, 5)
SCALAR = torch.tensor(2.5)
FAR = 1e4 + torch.arange(20.0).reshape(4, 5)
SPECIAL = torch.tensor([[1.0, NAN, 3.0, NAN], [2.0, 2.0, -INF, 0.0], [NAN, NAN, NAN, NAN], [INF, 1.0, INF, 2.0]])
INTS = torch.tensor([[3, -1, 3], [0, 7, 7]])
BOOLS = torch.tensor([[True, False, True], [False, False, False]])
COMPLEX = torch.complex(randn(3, 4), randn(3, 4) * 2)
EMPTY = torch.zeros(0, 3)
ALL = [X, X.bfloat16(), X.double(), SPECIAL, INTS, INTS.to(torch.int8), BOOLS, SCALAR]
FLOATS = [X, X.half(), X.double(), FAR, SPECIAL, SCALAR]

SUMS: list[Case] = [
    case
    for x in [*ALL, COMPLEX]
    for case in [
        (aten.sum.default, x),
        (aten.sum.dim_IntList, x, [-1], True),
        (aten.prod.default, x),
        (aten.prod.dim_int, x, -1, True),
        (aten.count_nonzero.default, x),
        (aten.any.default, x),
        (aten.all.dim, x, -1, True),
    ]
] + [
    (aten.sum.default, INTS.to(torch.uint8), {"dtype": torch.uint8}),
    (aten.sum.dim_IntList, X, None, {"dtype": torch.float64}),
    (aten.sum.dim_IntList, X, [0, 2]),
    (aten.sum.dim_IntList, EMPTY, [0]),
    (aten.prod.default, EMPTY),
    (aten.nansum.default, SPECIAL, [1]),
    (aten.nansum.default, X.bfloat16()),
    (aten.count_nonzero.default, X, 1),
    (aten.count_nonzero.dim_IntList, INTS, [0, 1]),
    (aten.mean.default, X.bfloat16()),
    (aten.mean.default, INTS, {"dtype": torch.float32}),
    (aten.mean.default, EMPTY),
    (aten.mean.dim, X, [0, -1], True),
    (aten.mean.dim, COMPLEX, [1]),
    (aten.any.dim, SPECIAL, 0),
    (aten.any.default, INTS.to(torch.uint8)),
    (aten.any.dims, BOOLS, []),
    (aten.any.dims, BOOLS, [0, 1], True),
    (aten.all.dims, BOOLS, None),
    (aten.all.dims, BOOLS, []),
    (aten.all.default, EMPTY),
    (aten.all.default, X),
    (aten._is_all_true.default, BOOLS),
    (aten._is_any_true.default, BOOLS),
]

EXTREMES: list[Case] = [
    case
    for x in ALL
    for case in [
        (aten.amax.default, x, [-1], True),
        (aten.amin.default, x),
        (aten.max.default, x),
        (aten.min.default, x),
        (aten.max.dim, x, -1),
        (aten.min.dim, x, 0, True),
        (aten.aminmax.default, x, {"dim": -1, "keepdim": True}),
    ]
] + [
    (aten.argmax.default, X),
    (aten.argmax.default, X.bfloat16(), 1),
    (aten.argmax.default, SPECIAL, 1),
    (aten.argmax.default, INTS),
    (aten.argmin.default, SPECIAL, -1, True),
    (aten.argmin.default, SCALAR, 0),
    (aten.amax.default, EMPTY, [1]),
    (aten.argmax.default, EMPTY, 1),
]

MOMENTS: list[Case] = [
    case
    for x in [*FLOATS, COMPLEX]
    for case in [
        (aten.var.correction, x, [-1]),
        (aten.std.correction, x, None, {"correction": 0, "keepdim": True}),
        (aten.var_mean.correction, x, [0], {"correction": 2.5}),
        (aten.std_mean.correction, x, None),
    ]
]

NORMS: list[Case] = [
    case
    for p in (0, 1, 2, 3, 0.5, INF, -INF)
    for case in [
        (aten.linalg_vector_norm.default, X, p, [0, -1], True),
        (aten.linalg_vector_norm.default, SPECIAL, p, [1]),
        (aten.norm.Scalar, X.double(), p),
        (aten.dist.default, X, X + 1, p),
        (aten.renorm.default, X, max(p, 0.5), 1, 1.5),
    ]
] + [
    (aten.linalg_vector_norm.default, X.bfloat16(), 2, None, {"dtype": torch.float32}),
    (aten.linalg_vector_norm.default, COMPLEX, 2),
    (aten.linalg_vector_norm.default, COMPLEX, INF, [0]),
    (aten.norm.ScalarOpt_dim, X, None, [1]),
    (aten.norm.ScalarOpt_dim_dtype, X, 1, [1], True, {"dtype": torch.float64}),
    (aten.norm.ScalarOpt_dtype, X, 2, {"dtype": torch.float64}),
    (aten.linalg__powsum.default, X, 3, [1]),
    (aten.linalg__powsum.default, X, 2),
    (aten.logsumexp.default, SPECIAL, [1]),
    (aten.logsumexp.default, X * 100, [0, 2], True),
    (aten.logsumexp.default, torch.full((2, 3), -INF), [1]),
    (aten.logsumexp.default, INTS, [1]),
    (aten.logsumexp.default, torch.zeros(2, 0), [1]),
]
PAIRS: list[Case] = [
    (aten._aminmax.default, X),
    (aten._aminmax.dim, X, 1),
    (aten._aminmax.dim, X, -1, True),
    (aten._aminmax.dim, torch.tensor(2.5), 0),
]
HASHES: list[Case] = [
    (aten.hash_tensor.default, X),
    (aten.hash_tensor.default, X.bfloat16(), [1], {"keepdim": True}),
    (aten.hash_tensor.default, INTS, [0]),
]

CASES = SUMS + PAIRS + EXTREMES + MOMENTS + NORMS + HASHES


@pytest.mark.parametrize("case", CASES, ids=label)
def test_reduction(case: Case) -> None:
    run(case)


def test_every_rule_has_a_case() -> None:
    assert not unexercised(reductions, [case[0] for case in CASES])


def test_a_long_float32_sum_is_as_accurate_as_on_the_cpu() -> None:
    x = torch.rand(1_000_000, generator=torch.Generator().manual_seed(0))
    exact = x.double().sum()
    ours = (evaluate(aten.sum.default, x).double() - exact).abs()
    assert ours <= 2 * (x.sum().double() - exact).abs() + exact * 1e-7


def test_variance_far_from_zero_takes_two_passes() -> None:
    x = 1e4 + randn(1000)
    exact = x.double().var()
    assert abs(evaluate(aten.var.correction, x) - exact) < 1e-6 * exact


def test_variance_of_float32_is_carried_in_float64_as_on_the_cpu() -> None:
    x = randn(200, 64)
    exact = x.double().var(0)
    theirs, ours = ((v.double() - exact).abs().max() for v in (x.var(0), evaluate(aten.var.correction, x, [0])))
    assert ours <= 1.01 * theirs
