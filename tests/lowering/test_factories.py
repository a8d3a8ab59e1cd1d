"""Fills, ranges, triangles and complex numbers from parts, against CPU PyTorch."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.agree import Case, label, run, unexercised
from tests.lowering.evaluate import evaluate
from torus.backend.lowering import factories

aten = torch.ops.aten

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
TENSOR = torch.tensor(2.5)

FILLS: list[Case] = [
    (aten.fill.Scalar, X, 1.5),
    (aten.fill.Scalar, torch.zeros(3, dtype=torch.int64), 2**62 + 1),
    (aten.fill.Scalar, torch.zeros(3, dtype=torch.bool), 2),
    (aten.fill.Tensor, X.bfloat16(), TENSOR),
    (aten._efficientzerotensor.default, [2, 3], {"dtype": torch.int32}),
    (aten.zero.default, X),
]
RANGES: list[Case] = (
    [
        (aten.arange.default, 7),
        (aten.arange.default, 2.5),
        (aten.arange.start, 2, 9),
        (aten.arange.start, 2**40, 2**40 + 5),
        (aten.arange.start_step, 10, 0, -3),
        (aten.arange.start_step, 0, 1, 0.1),
        (aten.arange.start_step, -1.5, 2.0, 0.25, {"dtype": torch.float64}),
        (aten.arange.start_step, 0, 6, 2, {"dtype": torch.int32}),
        (aten.arange.start_step, 0, 300, 7, {"dtype": torch.bfloat16}),
        (aten.arange.default, 0),
        (aten.range.default, 1, 4),
        (aten.range.step, 0, 1, 0.25),
        (aten.linspace.default, 1, 2, 1),
        (aten.linspace.default, 1, 2, 0),
        (aten.linspace.default, 0, 9, 4, {"dtype": torch.int64}),
        (aten.linspace.default, -3.7, 9.2, 6, {"dtype": torch.int32}),
        (aten.logspace.default, -2, 2, 9),
        (aten.logspace.default, 0, 4, 5, 2.0),
        (aten.logspace.default, 0.0, 3.0, 7, 10.0, {"dtype": torch.float64}),
    ]
    + [
        (aten.linspace.default, -1.0, 3.0, 11, {"dtype": d})
        for d in (torch.float32, torch.float64, torch.bfloat16, torch.complex64)
    ]
    + [(f.Tensor_Tensor, TENSOR, TENSOR * 2, 7) for f in (aten.linspace, aten.logspace)]
    + [(f.Tensor_Scalar, TENSOR, 4.0, 7) for f in (aten.linspace, aten.logspace)]
    + [(f.Scalar_Tensor, 0.5, TENSOR, 7) for f in (aten.linspace, aten.logspace)]
)
TRIANGLES: list[Case] = (
    [(aten.eye.default, 3), (aten.eye.m, 2, 4, {"dtype": torch.bool}), (aten.eye.m, 3, 0)]
    + [(op, X, d) for op in (aten.tril.default, aten.triu.default) for d in (0, 1, -2)]
    + [(op, torch.arange(24).reshape(2, 3, 4)) for op in (aten.tril.default, aten.triu.default)]
    + [
        (op, rows, columns, offset)
        for op in (aten.tril_indices.default, aten.triu_indices.default)
        for rows, columns, offset in [(3, 3, 0), (4, 2, 1), (2, 5, -1), (5, 3, -2), (3, 4, 9), (3, 4, -9), (0, 3, 0)]
    ]
)
COMPLEX: list[Case] = [
    (aten.complex.default, X, X[0]),
    (aten.complex.default, X.double(), X.double()),
    (aten.polar.default, X.abs(), X),
]
CASES = FILLS + RANGES + TRIANGLES + COMPLEX


@pytest.mark.parametrize("case", CASES, ids=label)
def test_agrees_with_cpu(case: Case) -> None:
    run(case)


def test_linspace_hits_both_ends() -> None:
    values = evaluate(aten.linspace.default, 0.1, 0.7, 1001)
    assert values[0] == torch.tensor(0.1) and values[-1] == torch.tensor(0.7)


def test_every_rule_is_exercised() -> None:
    assert not unexercised(factories, [case[0] for case in CASES])
