"""Activations and their gradients against CPU PyTorch, and gradients against autograd in float64."""

from __future__ import annotations

import math

import pytest
import torch

from tests.lowering.agree import Case, agrees, label, run, unexercised
from tests.lowering.evaluate import evaluate
from torus.backend.lowering import activation

aten = torch.ops.aten
NAN, INF = math.nan, math.inf


def randn(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


X = randn(3, 4) * 3
GRAD = randn(3, 4, seed=1)
UNIT = X.sigmoid()
EDGES = torch.tensor([0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0, 25.0, -30.0, 120.0, -120.0])
BEYOND = torch.cat([EDGES, torch.tensor([INF, -INF, NAN])])
ONES = torch.ones_like(EDGES)
BF16, BF16_GRAD = X.bfloat16(), GRAD.bfloat16()

FUNCTIONS = [
    (aten.relu.default, ()),
    (aten.leaky_relu.default, (0.1,)),
    (aten.elu.default, (1.3, 1.1, 0.7)),
    (aten.celu.default, (0.5,)),
    (aten.hardtanh.default, (-0.5, 1)),
    (aten.silu.default, ()),
    (aten.mish.default, ()),
    (aten.hardsigmoid.default, ()),
    (aten.hardswish.default, ()),
    (aten.softplus.default, (2, 15)),
    (aten.softshrink.default, (0.5,)),
    (aten.hardshrink.default, (0.5,)),
    (aten.gelu.default, ()),
]
GRADIENTS = [  # of grad and x, then the other arguments
    (aten.leaky_relu_backward.default, (0.1, False)),
    (aten.hardtanh_backward.default, (-0.5, 1)),
    (aten.silu_backward.default, ()),
    (aten.mish_backward.default, ()),
    (aten.hardsigmoid_backward.default, ()),
    (aten.hardswish_backward.default, ()),
    (aten.softplus_backward.default, (2, 15)),
    (aten.softshrink_backward.default, (0.5,)),
    (aten.hardshrink_backward.default, (0.5,)),
    (aten.gelu_backward.default, ()),
]
TANH = {"approximate": "tanh"}
FINITE_ONLY = (aten.mish.default, aten.silu.default, aten.gelu.default, aten.hardswish.default)

CASES: list[Case] = (
    [(op, EDGES if op in FINITE_ONLY else BEYOND, *rest) for op, rest in FUNCTIONS]
    + [(op, BF16, *rest) for op, rest in FUNCTIONS]
    + [(op, ONES, EDGES, *rest) for op, rest in GRADIENTS]
    + [(op, BF16_GRAD, BF16, *rest) for op, rest in GRADIENTS]
    + [(aten.gelu.default, x, TANH) for x in (EDGES, BF16, X.double())]
    + [(aten.gelu_backward.default, g, x, TANH) for g, x in ((ONES, EDGES), (GRAD, X), (BF16_GRAD, BF16))]
    + [(aten.relu.default, torch.tensor([[3, -1, 0]])), (aten.hardtanh.default, torch.tensor([3, -5, 0]), -1, 2)]
    + [(aten.elu_backward.default, GRAD, 1.3, 1.1, 0.7, is_result, X) for is_result in (False, True)]
    + [(aten._prelu_kernel.default, X, randn(1, 4)), (aten._prelu_kernel_backward.default, GRAD, X, randn(1, 4))]
    + [(aten._prelu_kernel.default, BF16, BF16[:1]), (aten._prelu_kernel_backward.default, BF16_GRAD, BF16, BF16[:1])]
    + [(aten.glu.default, X), (aten.glu.default, BF16, 1), (aten.glu.default, randn(4, 3), 0)]
    + [(aten.glu_jvp.default, aten.glu(X), X, X.sin(), -1)]
    + [
        (
            aten.glu_backward_jvp.default,
            aten.glu_backward(GRAD[:, :2], X, -1),
            GRAD[:, :2],
            X,
            GRAD[:, :2].cos(),
            X.sin(),
            -1,
        )
    ]
    + [(aten.glu_backward.default, GRAD[:, :2], X, -1), (aten.glu_backward.default, BF16_GRAD[:, :2], BF16, 1)]
    + [(aten.sigmoid_backward.default, GRAD, UNIT), (aten.tanh_backward.default, GRAD, X.tanh())]
    + [
        (op, torch.complex(GRAD, X), torch.complex(UNIT, X))
        for op in (aten.sigmoid_backward.default, aten.tanh_backward.default)
    ]
    + [(op, BF16_GRAD, UNIT.bfloat16()) for op in (aten.sigmoid_backward.default, aten.tanh_backward.default)]
    + [(aten.logit.default, x, eps) for x in (UNIT, torch.tensor([0.0, 1.0, -1.0, 2.0, NAN])) for eps in (None, 0.1)]
    + [(aten.logit_backward.default, GRAD, UNIT, eps) for eps in (None, 0.1)]
    + [
        (aten.logit_backward.default, torch.ones(5), torch.tensor([0.0, 1.0, -1.0, 2.0, NAN]), eps)
        for eps in (None, 0.1)
    ]
    + [(aten.log_sigmoid_backward.default, GRAD, X, (-X.abs()).exp())]
    + [
        (aten.rrelu_with_noise_backward.default, GRAD, X, UNIT, 0.1, upper, training, False)
        for upper, training in ((0.3, True), (0.1, True), (0.3, False))
    ]
    + [
        (aten.native_dropout_backward.default, GRAD, X > 0, 2.0),
        (aten.native_dropout_backward.default, BF16_GRAD, X > 0, 1.25),
    ]
)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_agrees_with_cpu(case: Case) -> None:
    run(case)


@pytest.mark.parametrize("x", [EDGES, BF16], ids=["edges", "bfloat16"])
def test_log_sigmoid(x: torch.Tensor) -> None:
    # The CPU keeps a buffer with its own meaning for half precisions; only the result is promised.
    result, _ = evaluate(aten.log_sigmoid_forward.default, x)
    torch.testing.assert_close(result, torch.nn.functional.logsigmoid(x))


def test_masked_scale() -> None:  # CUDA only in PyTorch
    mask = (X > 0).to(torch.uint8)
    agrees(aten._masked_scale.default, GRAD, mask, 2.0, reference=GRAD * mask * 2.0)


def test_celu_with_small_alpha() -> None:
    assert evaluate(aten.celu.default, torch.tensor([1.0]), 0.5) == 1.0


@pytest.mark.parametrize("rest", [(), ({"approximate": "tanh"},)], ids=["erf", "tanh"])
def test_gelu_gradient_is_the_derivative(rest: tuple[dict[str, str], ...]) -> None:
    kwargs = rest[0] if rest else {}
    x = X.double().requires_grad_()
    (expected,) = torch.autograd.grad(torch.nn.functional.gelu(x, **kwargs).sum(), x)
    torch.testing.assert_close(evaluate(aten.gelu_backward.default, torch.ones_like(x), x, **kwargs), expected)


def test_every_rule_is_exercised() -> None:
    by_hand = {aten.log_sigmoid_forward.default, aten._masked_scale.default}
    assert not unexercised(activation, {case[0] for case in CASES} | by_hand)
