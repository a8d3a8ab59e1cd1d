"""Fractional max pooling: windows of one size whose starts are spaced by a random fraction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torus.backend.lowering.apply import cast
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import OutSpec, lowers


def _starts(sample: Any, size: int, output: int, window: int) -> Any:
    """The first positions of `output` windows along one dimension, for each plane."""
    alpha = (size - window) / max(output - 1, 1)
    place = lax.iota("int64", output).astype(sample.dtype)
    starts = ((place + sample[:, None]) * alpha).astype("int64") - (sample[:, None] * alpha).astype("int64")
    return jnp.where(place == output - 1, size - window, starts)


def _positions(samples: Any, sizes: Sequence[int], outputs: Sequence[int], windows: Sequence[int]) -> Any:
    """Where in its plane each element of each window lies: (planes, outputs, elements of a window)."""
    rank = len(sizes)
    flat = jnp.zeros((1,) * (2 * rank + 1), "int64")
    for d, (size, output, window) in enumerate(zip(sizes, outputs, windows, strict=True)):
        places = _starts(samples[:, d], size, output, window)[:, :, None] + lax.iota("int64", window)
        shape = [1] * (2 * rank + 1)
        shape[0], shape[1 + d], shape[1 + rank + d] = places.shape
        flat = flat * size + places.reshape(shape)
    return flat.reshape(samples.shape[0], math.prod(outputs), math.prod(windows))


def _pool(x: Any, windows: Sequence[int], outputs: Sequence[int], samples: Any) -> Any:
    rank = len(outputs)
    sizes, batch = x.shape[-rank:], x.shape[:-rank]
    planes = math.prod(batch)
    where = _positions(samples.reshape(planes, rank), sizes, outputs, windows)
    values = jnp.take_along_axis(x.reshape(planes, 1, math.prod(sizes)), where, 2)
    best = jnp.argmax(values, 2, keepdims=True)
    shape = (*batch, *outputs)
    return [jnp.take_along_axis(v, best, 2).reshape(shape) for v in (values, where)]


@lowers("aten::fractional_max_pool2d")
def fractional_max_pool2d(x: Any, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Any) -> Any:
    """The samples name the width first."""
    return _pool(x, kernel_size, output_size, random_samples[..., ::-1])


@lowers("aten::fractional_max_pool3d")
def fractional_max_pool3d(x: Any, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Any) -> Any:
    return _pool(x, kernel_size, output_size, random_samples)


@lowers("aten::fractional_max_pool2d_backward", "aten::fractional_max_pool3d_backward")
def fractional_max_pool_backward(
    grad: Any, x: Any, kernel_size: Sequence[int], output_size: Sequence[int], indices: Any, *, out: OutSpec
) -> Any:
    rank = len(output_size)
    planes, size = math.prod(x.shape[:-rank]), math.prod(x.shape[-rank:])
    grad, indices = (v.reshape(planes, math.prod(output_size)) for v in (grad, indices))
    wide = "float32" if grad.dtype.itemsize < 4 else str(grad.dtype)
    rows = lax.broadcasted_iota("int64", indices.shape, 0)
    return jnp.zeros((planes, size), wide).at[rows, indices].add(cast(grad, wide)).reshape(x.shape)
