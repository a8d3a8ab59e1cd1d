"""Ops over lists of tensors against CPU PyTorch."""

from __future__ import annotations

import math

import pytest
import torch

from tests.lowering.agree import Case, label, run, unexercised
from torus.backend.lowering import foreach

aten = torch.ops.aten


def randn(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed))


LIST = [randn(2, 3), randn(4, seed=1), randn(seed=2)]
OTHERS = [randn(2, 3, seed=3) + 3, randn(1, seed=4), randn(seed=5)]
MIXED = [randn(2).bfloat16(), torch.tensor([1, -2, 3]), randn(3).double()]
UNIT = [x.sigmoid() for x in LIST]
NUMBERS = [2.0, 0.5, 3]
SPECIAL = [torch.tensor([1.0, -2.0, math.nan]), torch.tensor([-5.0, -math.inf])]
INTS = [torch.tensor([3, -2]), torch.tensor([7])]


def op(name: str, overload: str = "default") -> torch._ops.OpOverload:
    return getattr(getattr(aten, f"_foreach_{name}"), overload)


NUMERIC = "clamp_max clamp_min div maximum minimum mul sub add".split()
CASES: list[Case] = (
    [(op(name), UNIT) for name in foreach._UNARY]
    + [(op(name), MIXED) for name in ("exp", "abs", "neg", "sqrt")]
    + [(op(name, "List"), LIST, OTHERS) for name in NUMERIC]
    + [(op(name, "Scalar"), LIST, 0.3) for name in NUMERIC]
    + [(op(name, "ScalarList"), LIST, NUMBERS) for name in NUMERIC]
    + [(op(name, "Tensor"), LIST, torch.tensor(1.7)) for name in ("mul", "div", "add")]
    + [(op("add", "List"), LIST, OTHERS, {"alpha": 0.5}), (op("sub", "List"), LIST, OTHERS, {"alpha": -2})]
    + [(op("add", "Tensor"), LIST, torch.tensor(1.0), {"alpha": 3.0})]
    + [(op("mul", "Scalar"), MIXED, 1.5), (op("add", "Scalar"), INTS, 2), (op("div", "Scalar"), INTS, 2)]
    + [(op("maximum", "Scalar"), SPECIAL, 0.0)]
    + [(op(name, "Scalar"), LIST, OTHERS, UNIT, 0.5) for name in ("addcmul", "addcdiv")]
    + [(op(name, "ScalarList"), LIST, OTHERS, UNIT, NUMBERS) for name in ("addcmul", "addcdiv")]
    + [(op("lerp", "Scalar"), LIST, OTHERS, w) for w in (0.1, 0.9)]
    + [(op("lerp", "List"), LIST, OTHERS, UNIT), (op("lerp", "ScalarList"), LIST, OTHERS, [0.1, 0.9, 0.5])]
    + [
        (op("pow", "Scalar"), UNIT, 2.5),
        (op("pow", "Scalar"), [MIXED[0], UNIT[0]], 3.0),
        (op("pow", "ScalarList"), UNIT, NUMBERS),
    ]
    + [(op("pow", "List"), UNIT, LIST), (op("pow", "ScalarAndTensor"), 2.0, LIST)]
    + [(op("norm", "Scalar"), LIST, p) for p in (2, 1, math.inf, 3.0)]
    + [
        (op("norm", "Scalar"), [randn(9).bfloat16(), INTS[0].half()], 2),
        (op("norm", "Scalar"), [torch.complex(randn(3), randn(3)), randn(2)], 2),
    ]
    + [(op("norm", "Scalar"), SPECIAL, 2, torch.float64)]
    + [(op("powsum", "Scalar"), LIST, p) for p in (2, 3.0)]
    + [(op("max"), [*SPECIAL, LIST[0]])]
    + [(op("mm"), [randn(2, 3), randn(4, 2)], [randn(3, 2), randn(2, 1)])]
    + [(op("copy"), [randn(2, 3), randn(4).bfloat16()], [torch.arange(3.0), randn(4).double()])]
    + [(op("clone"), MIXED), (op("zero"), MIXED)]
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{label(case[:1])}-{len(case)}")
def test_agrees_with_cpu(case: Case) -> None:
    run(case)


def test_every_rule_is_exercised() -> None:
    assert not unexercised(foreach, [case[0] for case in CASES])
