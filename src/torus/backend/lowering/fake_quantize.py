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
