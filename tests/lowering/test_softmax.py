"""Softmax and its relatives against CPU PyTorch."""

from __future__ import annotations

import math

import pytest
import torch

from tests.lowering.agree import Case, label, run, unexercised
from torus.backend.lowering import softmax

aten = torch.ops.aten
INF = math.inf

X = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
SPECIAL = torch.tensor([[-INF, -INF], [INF, 1.0], [-INF, 2.0], [math.nan, 0.0], [1e4, 1e4 - 1]])
INPUTS = [X, X.bfloat16(), X.half(), X.double(), SPECIAL, torch.tensor(2.0), torch.zeros(2, 0)]

CASES: list[Case] = (
    [
        (op, x, dim, False)
        for op in (aten._softmax.default, aten._log_softmax.default)
        for x in INPUTS
        for dim in (0, -1)
    ]
    + [(aten._safe_softmax.default, x, -1) for x in INPUTS[:5]]
    + [(aten._safe_softmax.default, X, 1, torch.float64)]
    + [
        (op, x, y, dim, x.dtype)
        for op in (aten._softmax_backward_data.default, aten._log_softmax_backward_data.default)
        for x, y, dim in [(X, X.softmax(1), 1), (X.bfloat16(), X.bfloat16().softmax(-1), -1), (X.sum(), X.max() * 0, 0)]
    ]
)


SCORES = torch.linspace(-3, 3, 36).reshape(2, 2, 3, 3)
LEFT_OUT = SCORES.sin() > 0.3
MASKED: list[Case] = [
    (aten._masked_softmax.default, SCORES, LEFT_OUT),
    (aten._masked_softmax.default, SCORES, LEFT_OUT, 2),
    (aten._masked_softmax.default, SCORES.bfloat16(), LEFT_OUT),
    (aten._masked_softmax.default, SCORES, torch.ones_like(LEFT_OUT), -1),
    (aten._masked_softmax.default, SCORES.double(), LEFT_OUT[0, 0], -1, 0),
    (aten._masked_softmax.default, SCORES, LEFT_OUT[0, 0, :2], -1, 1),
    (aten._masked_softmax_backward.default, SCORES.cos(), SCORES.softmax(-1), LEFT_OUT, -1),
]
CASES += MASKED


@pytest.mark.parametrize("case", CASES, ids=label)
def test_softmax(case: Case) -> None:
    run(case)


def test_every_rule_has_a_case() -> None:
    assert not unexercised(softmax, [case[0] for case in CASES])
