"""The fused cells that PyTorch's LSTM and GRU call for each step on devices like this one.

The gates come multiplied by the weights, in PyTorch's order: input, forget, cell, output and reset, update, new.
"""

from __future__ import annotations

from typing import Any

from torus.backend.lowering.apply import cast
from torus.backend.lowering.axes import opmath
from torus.backend.lowering.lazy import jax, jnp, lax
from torus.backend.lowering.registry import lowers


@lowers("aten::_thnn_fused_lstm_cell")
def lstm_cell(
    input_gates: Any, hidden_gates: Any, cx: Any, input_bias: Any = None, hidden_bias: Any = None
) -> tuple[Any, ...]:
    """New hidden state, new cell state, and the activated gates that the gradient needs."""
    gates = opmath(_biased(input_gates, input_bias)) + opmath(_biased(hidden_gates, hidden_bias))
    i, f, g, o = jnp.split(gates, 4, axis=1)
    i, f, g, o = _sigmoid(i), _sigmoid(f), lax.tanh(g), _sigmoid(o)
    cy = f * opmath(cx) + i * g
    return _as(cx, o * lax.tanh(cy), cy, lax.concatenate([i, f, g, o], 1))


@lowers("aten::_thnn_fused_lstm_cell_backward_impl")
def lstm_cell_backward(grad_hy: Any, grad_cy: Any, cx: Any, cy: Any, workspace: Any, has_bias: bool) -> tuple[Any, ...]:
    """Gradients of the gates (of both products alike), of the old cell state, and of each bias."""
    i, f, g, o = jnp.split(opmath(workspace), 4, axis=1)
    squashed = lax.tanh(opmath(cy))
    dh = opmath(grad_hy) if grad_hy is not None else jnp.zeros_like(squashed)
    dc = dh * o * (1 - squashed * squashed)
    if grad_cy is not None:
        dc = dc + opmath(grad_cy)
    gates = lax.concatenate(
        [dc * g * i * (1 - i), dc * opmath(cx) * f * (1 - f), dc * i * (1 - g * g), dh * squashed * o * (1 - o)], 1
    )
    return _as(cx, gates, dc * f, gates.sum(axis=0) if has_bias else None)


@lowers("aten::_thnn_fused_gru_cell")
def gru_cell(
    input_gates: Any, hidden_gates: Any, hx: Any, input_bias: Any = None, hidden_bias: Any = None
) -> tuple[Any, ...]:
    """New hidden state, and (reset, update, new, old state, hidden part of new) side by side for the gradient."""
    ri, zi, ni = jnp.split(opmath(_biased(input_gates, input_bias)), 3, axis=1)
    rh, zh, nh = jnp.split(opmath(_biased(hidden_gates, hidden_bias)), 3, axis=1)
    h = opmath(hx)
    r, z = _sigmoid(ri + rh), _sigmoid(zi + zh)
    n = lax.tanh(ni + r * nh)
    return _as(hx, n + z * (h - n), lax.concatenate([r, z, n, h, nh], 1))


@lowers("aten::_thnn_fused_gru_cell_backward")
def gru_cell_backward(grad_hy: Any, workspace: Any, has_bias: bool) -> tuple[Any, ...]:
    """Gradients of the input's gates, the hidden state's gates, the old state, and the two biases."""
    r, z, n, h, nh = jnp.split(opmath(workspace), 5, axis=1)
    g = opmath(grad_hy)
    dn = g * (1 - z) * (1 - n * n)
    dz = g * (h - n) * z * (1 - z)
    dr = dn * nh * r * (1 - r)
    gates_input = lax.concatenate([dr, dz, dn], 1)
    gates_hidden = lax.concatenate([dr, dz, dn * r], 1)
    biases = (gates_input.sum(axis=0), gates_hidden.sum(axis=0)) if has_bias else (None, None)
    return _as(grad_hy, gates_input, gates_hidden, g * z, *biases)


def _biased(gates: Any, bias: Any) -> Any:
    return gates if bias is None else gates + bias


def _as(like: Any, *results: Any) -> tuple[Any, ...]:
    """The results in the dtype of `like`: not all of these ops have a meta kernel to say it."""
    return tuple(r if r is None else cast(r, str(like.dtype)) for r in results)


def _sigmoid(x: Any) -> Any:
    return jax.nn.sigmoid(x)
