"""Rounding to the levels of a quantized dtype and back, for training; with the mask of what was not clipped."""

from __future__ import annotations

from typing import Any

from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.reductions import widen
from torus.backend.lowering.registry import lowers


def _fake_quantize(x: Any, scale: Any, zero_point: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """A zero point that is a float is added before rounding, an integer after it."""
    dtype, x = x.dtype, widen(x)
    scale = scale.astype(x.dtype)
    scaled, shift = x * (1 / scale), zero_point.astype(x.dtype)
    even = lax.RoundingMethod.TO_NEAREST_EVEN
    if jnp.issubdtype(zero_point.dtype, jnp.floating):
        level = lax.round(scaled + shift, even)
    else:
        level = lax.round(scaled, even) + shift
    result = (jnp.clip(level, low, high) - shift) * scale
    return result.astype(dtype), (level >= low) & (level <= high)


@lowers("aten::fake_quantize_per_tensor_affine_cachemask", runtime=("zero_point", "quant_min", "quant_max"))
def fake_quantize(x: Any, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any) -> Any:
    return _fake_quantize(x, scale, zero_point, quant_min, quant_max)


@lowers("aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", runtime=("quant_min", "quant_max"))
def fake_quantize_by_tensors(
    x: Any, scale: Any, zero_point: Any, fake_quant_enabled: Any, quant_min: Any, quant_max: Any
) -> Any:
    result, mask = _fake_quantize(x, scale.reshape(()), zero_point.reshape(()), quant_min, quant_max)
    enabled = fake_quant_enabled.reshape(()) != 0
    return jnp.where(enabled, result, x), mask | ~enabled


@lowers("aten::fake_quantize_per_channel_affine_cachemask", runtime=("quant_min", "quant_max"))
def fake_quantize_channels(x: Any, scale: Any, zero_point: Any, axis: int, quant_min: Any, quant_max: Any) -> Any:
    shape = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
    return _fake_quantize(x, scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max)


# A scale and a zero point that are learned: the zero point is a float, and rounded to a level.


def _learned_zero_point(zero_point: Any, low: Any, high: Any, round: bool = True) -> Any:
    """Rounded to even, or as the backward of one scale for all has it, up from the half."""
    even = lax.RoundingMethod.TO_NEAREST_EVEN
    level = lax.round(zero_point, even) if round else zero_point + 0.5
    return jnp.clip(level, low, high).astype("int32")


@lowers("aten::_fake_quantize_learnable_per_tensor_affine", runtime=("quant_min", "quant_max"))
def fake_quantize_learned(
    x: Any, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, grad_factor: Any = 1.0
) -> Any:
    zero = _learned_zero_point(zero_point.reshape(()), quant_min, quant_max)
    return _fake_quantize(x, scale.reshape(()), zero, quant_min, quant_max)[0]


@lowers("aten::_fake_quantize_learnable_per_channel_affine", runtime=("quant_min", "quant_max"))
def fake_quantize_channels_learned(
    x: Any, scale: Any, zero_point: Any, axis: int, quant_min: Any, quant_max: Any, grad_factor: Any = 1.0
) -> Any:
    zero = _learned_zero_point(zero_point, quant_min, quant_max)
    return fake_quantize_channels(x, scale, zero, axis, quant_min, quant_max)[0]


def _learned_gradients(
    grad: Any, x: Any, scale: Any, zero: Any, low: Any, high: Any, factor: Any
) -> tuple[Any, Any, Any]:
    """Of each element, for itself, for the scale and for the zero point (learned step size: Esser et al. 2020)."""
    zero = zero.astype(x.dtype)
    level = lax.round(x * (1 / scale) + zero, lax.RoundingMethod.TO_NEAREST_EVEN)
    clipped = jnp.clip(level, low, high)
    inside = level == clipped
    for_scale = jnp.where(inside, ((clipped - zero) * scale - x) / scale, clipped - zero)
    for_zero = jnp.where(inside, 0.0, -scale)
    return jnp.where(inside, grad, 0), grad * for_scale * factor, grad * for_zero * factor


@lowers("aten::_fake_quantize_learnable_per_tensor_affine_backward", runtime=("quant_min", "quant_max"))
def fake_quantize_learned_backward(
    grad: Any, x: Any, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, grad_factor: Any = 1.0
) -> Any:
    zero = _learned_zero_point(zero_point.reshape(()), quant_min, quant_max, round=False)
    dx, ds, dz = _learned_gradients(grad, x, scale.reshape(()), zero, quant_min, quant_max, grad_factor)
    return dx, jnp.sum(ds).reshape(1), jnp.sum(dz).reshape(1)


@lowers("aten::_fake_quantize_learnable_per_channel_affine_backward", runtime=("quant_min", "quant_max"))
def fake_quantize_channels_learned_backward(
    grad: Any, x: Any, scale: Any, zero_point: Any, axis: int, quant_min: Any, quant_max: Any, grad_factor: Any = 1.0
) -> Any:
    axis = axis % x.ndim
    shape = [-1 if i == axis else 1 for i in range(x.ndim)]
    zero = _learned_zero_point(zero_point, quant_min, quant_max)
    dx, ds, dz = _learned_gradients(
        grad, x, scale.reshape(shape), zero.reshape(shape), quant_min, quant_max, grad_factor
    )
    others = [i for i in range(x.ndim) if i != axis]
    return dx, jnp.sum(ds, others), jnp.sum(dz, others)
