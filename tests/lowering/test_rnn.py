"""The fused LSTM and GRU cells against the formulas of torch.nn, differentiated by autograd in float64."""

from __future__ import annotations

from typing import Any

import jax
import pytest
import torch

from tests.lowering.agree import name, unexercised
from tests.lowering.evaluate import evaluate, to_numpy, to_torch
from torus.backend.lowering import rnn
from torus.backend.lowering.registry import RULES

pytestmark = pytest.mark.slow

aten = torch.ops.aten
BATCH, HIDDEN = 3, 5


def randn(*sizes: int, seed: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def inputs(gates: int, biased: bool) -> list[torch.Tensor | None]:
    width = gates * HIDDEN
    biases = [randn(width, seed=4), randn(width, seed=5)] if biased else [None, None]
    state = randn(BATCH, HIDDEN, seed=3)
    return [randn(BATCH, width, seed=1), randn(BATCH, width, seed=2), state, *biases]


def plus(gates: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return gates if bias is None else gates + bias


def lstm(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, p: torch.Tensor | None, q: torch.Tensor | None) -> tuple:
    i, f, g, o = (plus(a, p) + plus(b, q)).chunk(4, 1)
    cell = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def gru(a: torch.Tensor, b: torch.Tensor, h: torch.Tensor, p: torch.Tensor | None, q: torch.Tensor | None) -> tuple:
    (ri, zi, ni), (rh, zh, nh) = plus(a, p).chunk(3, 1), plus(b, q).chunk(3, 1)
    r, z = (ri + rh).sigmoid(), (zi + zh).sigmoid()
    n = (ni + r * nh).tanh()
    return ((1 - z) * n + z * h,)


def forward(op: Any, args: list) -> list:
    """`evaluate`, but PyTorch's meta kernel for the LSTM cell fails where there are no biases."""
    if args[3] is not None:
        return evaluate(op, *args)
    with jax.enable_x64(True):
        return [to_torch(r) for r in RULES[name(op)].fn(*[to_numpy(x) for x in args[:3]])]


def close(actual: list, expected: tuple) -> None:
    for a, e in zip(actual, expected):
        torch.testing.assert_close(a, e)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("grad_h", "grad_c"), [(True, True), (True, False), (False, True)])
def test_lstm_cell(biased: bool, grad_h: bool, grad_c: bool) -> None:
    args = [x if x is None else x.requires_grad_() for x in inputs(4, biased)]
    expected = lstm(*args)
    hy, cy, workspace = forward(aten._thnn_fused_lstm_cell.default, args)
    close([hy, cy], tuple(e.detach() for e in expected))
    grads = [randn(BATCH, HIDDEN, seed=7) if wanted else None for wanted in (grad_h, grad_c)]
    pairs = [(e, g) for e, g in zip(expected, grads) if g is not None]
    torch.autograd.backward([e for e, _ in pairs], [g for _, g in pairs])
    op = aten._thnn_fused_lstm_cell_backward_impl.default
    gates, cell, bias = evaluate(op, *grads, args[2], cy, workspace, biased)
    close([gates, gates, cell], (args[0].grad, args[1].grad, args[2].grad))
    assert (bias is None) if not biased else torch.allclose(bias, args[3].grad)


@pytest.mark.parametrize("biased", [True, False])
def test_gru_cell(biased: bool) -> None:
    args = [x if x is None else x.requires_grad_() for x in inputs(3, biased)]
    (expected,) = gru(*args)
    hy, workspace = forward(aten._thnn_fused_gru_cell.default, args)
    close([hy], (expected.detach(),))
    g = randn(BATCH, HIDDEN, seed=7)
    expected.backward(g)
    grads = evaluate(aten._thnn_fused_gru_cell_backward.default, g, workspace, biased)
    close([x for x in grads if x is not None], tuple(x.grad for x in args if x is not None))


def test_half_precision_comes_back() -> None:
    args = [x if x is None else x.bfloat16() for x in inputs(3, True)]
    assert all(r.dtype == torch.bfloat16 for r in evaluate(aten._thnn_fused_gru_cell.default, *args))


def test_every_rule_is_exercised() -> None:
    ops = [aten._thnn_fused_lstm_cell, aten._thnn_fused_lstm_cell_backward_impl]
    ops += [aten._thnn_fused_gru_cell, aten._thnn_fused_gru_cell_backward]
    assert not unexercised(rnn, [op.default for op in ops])
