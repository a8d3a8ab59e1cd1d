"""Softmax, log-softmax and their gradients, computed in float32 for half precisions."""

from __future__ import annotations

from typing import Any

from torus.backend.lowering.apply import cast
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.reductions import axis_of, opmath, widen
from torus.backend.lowering.registry import OutSpec, lowers


def softmax_over(x: Any, axis: int) -> Any:
    """Softmax of `x` along `axis`; a row of -inf gives NaN."""
    e = lax.exp(x - jnp.max(x, axis, keepdims=True))
    return e / jnp.sum(e, axis, keepdims=True)


def safe_softmax_over(x: Any, axis: int) -> Any:
    """Softmax of `x` along `axis`; a row of -inf gives zeros."""
    peak = jnp.max(x, axis, keepdims=True)
    empty = peak == -jnp.inf
    e = lax.exp(x - jnp.where(empty, jnp.zeros((), x.dtype), peak))
    total = jnp.sum(e, axis, keepdims=True)
    return e / jnp.where(empty, jnp.ones((), x.dtype), total)


def _along(fn: Any, x: Any, dim: int, dtype: str) -> Any:
    x = cast(x, opmath(dtype))
    if x.size == 0:
        return x
    return fn(x.reshape(-1) if x.ndim == 0 else x, axis_of(dim, x.ndim)).reshape(x.shape)


def _log_softmax_over(x: Any, axis: int) -> Any:
    shifted = x - jnp.max(x, axis, keepdims=True)
    return shifted - lax.log(jnp.sum(lax.exp(shifted), axis, keepdims=True))


@lowers("aten::_softmax")
def softmax(x: Any, dim: int, half_to_float: bool, *, out: OutSpec) -> Any:
    return _along(softmax_over, x, dim, out.dtype)


@lowers("aten::_safe_softmax")
def safe_softmax(x: Any, dim: int, dtype: Any = None, *, out: OutSpec) -> Any:
    return _along(safe_softmax_over, x, dim, out.dtype)


@lowers("aten::_log_softmax")
def log_softmax(x: Any, dim: int, half_to_float: bool, *, out: OutSpec) -> Any:
    return _along(_log_softmax_over, x, dim, out.dtype)


def softmax_gradient(grad: Any, output: Any, axis: int) -> Any:
    """Gradient of softmax along `axis`, given its output."""
    weighted = grad * output
    return weighted - output * jnp.sum(weighted, axis, keepdims=True)


def _flat_if_0d(x: Any) -> Any:
    return x.reshape(1) if x.ndim == 0 else x


@lowers("aten::_softmax_backward_data")
def softmax_backward(grad: Any, output: Any, dim: int, input_dtype: Any, *, out: OutSpec) -> Any:
    grad, output = _flat_if_0d(widen(grad)), _flat_if_0d(widen(output))
    return softmax_gradient(grad, output, axis_of(dim, grad.ndim)).reshape(out.shape)


@lowers("aten::_log_softmax_backward_data")
def log_softmax_backward(grad: Any, output: Any, dim: int, input_dtype: Any, *, out: OutSpec) -> Any:
    grad, output = _flat_if_0d(widen(grad)), _flat_if_0d(widen(output))
    axis = axis_of(dim, grad.ndim)
    return (grad - lax.exp(output) * jnp.sum(grad, axis, keepdims=True)).reshape(out.shape)


def _mask_of(x: Any, mask: Any, mask_type: int | None) -> Any:
    """Where elements take no part. Type 0 masks positions of (L, L), type 1 keys of (B, L), type 2 each element."""
    if mask_type == 0:
        mask = mask[None, None]
    elif mask_type == 1:
        mask = mask[:, None, None]
    return jnp.broadcast_to(mask.astype("bool"), x.shape)


@lowers("aten::_masked_softmax")
def masked_softmax(x: Any, mask: Any, dim: int | None = None, mask_type: int | None = None) -> Any:
    """Softmax over what is not masked, zeros elsewhere; NaN where everything is."""
    left_out = _mask_of(x, mask, 2 if mask.shape == x.shape else mask_type)
    wide = jnp.where(left_out, -jnp.inf, widen(x))
    return _along(softmax_over, wide, x.ndim - 1 if dim is None else dim, str(x.dtype)).astype(x.dtype)


@lowers("aten::_masked_softmax_backward")
def masked_softmax_backward(grad: Any, output: Any, mask: Any, dim: int | None = None) -> Any:
    left_out = _mask_of(output, mask, 2)
    axis = axis_of(output.ndim - 1 if dim is None else dim, output.ndim)
    grad = jnp.where(left_out, 0, widen(grad))
    return jnp.where(left_out, 0, softmax_gradient(grad, widen(output), axis)).astype(output.dtype)
