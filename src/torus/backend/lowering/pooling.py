"""Pooling: maxima with their indices, averages, the adaptive forms of both, unpooling, and all the gradients.

Maxima follow ATen's CPU kernels: a NaN wins, the last of several; among equals the first wins; padding never does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from torus.backend.lowering.apply import check_bounds
from torus.backend.lowering.axes import ntuple, opmath, sum_taps, take_static, transpose_taps, zero
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import OutSpec, lowers

Ints = Sequence[int]
Pair = tuple[Any, Any]

UNROLLED_TAPS = 16
"""Windows up to this size are compared tap by tap, which XLA:CPU vectorises; larger ones use one reduce_window."""


@lowers("aten::max_pool2d_with_indices", "aten::max_pool3d_with_indices")
def max_pool_with_indices(
    self: Any,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = (0,),
    dilation: Ints = (1,),
    ceil_mode: bool = False,
    *,
    out: tuple[OutSpec, OutSpec],
) -> Pair:
    n = _pooled_dims(kernel_size, self)
    kernel, padding, dilation = ntuple(kernel_size, n), ntuple(padding, n), ntuple(dilation, n)
    stride = ntuple(stride, n) if len(stride) else kernel
    sizes = out[0].shape[-n:]
    pads = [
        (p, (o - 1) * s + d * (k - 1) + 1 - size - p)
        for p, o, s, d, k, size in zip(padding, sizes, stride, dilation, kernel, self.shape[-n:])
    ]
    lead = self.ndim - n
    config = [(0, 0, 0)] * lead + [(low, high, 0) for low, high in pads]
    values = lax.pad(self, _lowest(self), config)
    index = lax.pad(_plane_index(self.shape[-n:]), np.int32(-1), config[lead:])
    if math.prod(kernel) > UNROLLED_TAPS:
        return _window_maximum(values, index, kernel, stride, dilation)
    best: Pair | None = None
    for tap in np.ndindex(*kernel):
        start = [t * d for t, d in zip(tap, dilation)]
        stop = [a + (o - 1) * s + 1 for a, o, s in zip(start, sizes, stride)]
        v = lax.slice(values, [0] * lead + start, [*self.shape[:lead], *stop], [1] * lead + list(stride))
        i = jnp.broadcast_to(lax.slice(index, start, stop, stride), v.shape)
        best = (v, i) if best is None else _later(best, (v, i))
    assert best is not None
    return best


@lowers("aten::adaptive_max_pool2d", "aten::adaptive_max_pool3d")
def adaptive_max_pool(self: Any, output_size: Ints, *, out: tuple[OutSpec, OutSpec]) -> Pair:
    n = _pooled_dims(output_size, self)
    sizes, lead = out[0].shape[-n:], self.ndim - n
    values, index = self, _plane_index(self.shape[-n:])
    for i, size in reversed(list(enumerate(sizes))):
        table, _ = _adaptive_windows(self.shape[lead + i], size)
        values, index = take_static(values, lead + i, table), take_static(index, i, table)
    # Each pooled axis is now a pair (output, position in the window).
    reduced = tuple(lead + 2 * i + 1 for i in range(n))
    initial = (_lowest(self), np.int32(-1))
    return lax.reduce((values, jnp.broadcast_to(index, values.shape)), initial, _better, reduced)


@lowers("aten::max_pool2d_with_indices_backward")
def max_pool2d_backward(
    grad_output: Any,
    self: Any,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
    indices: Any,
) -> Any:
    return _scatter_planes(opmath(grad_output), indices, self.shape, 2, lax.scatter_add)


@lowers("aten::max_pool3d_with_indices_backward")
def max_pool3d_backward(
    grad_output: Any,
    self: Any,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
    indices: Any,
) -> Any:
    return _scatter_planes(opmath(grad_output), indices, self.shape, 3, lax.scatter_add)


@lowers("aten::adaptive_max_pool2d_backward")
def adaptive_max_pool2d_backward(grad_output: Any, self: Any, indices: Any) -> Any:
    return _scatter_planes(opmath(grad_output), indices, self.shape, 2, lax.scatter_add)


@lowers("aten::adaptive_max_pool3d_backward")
def adaptive_max_pool3d_backward(grad_output: Any, self: Any, indices: Any) -> Any:
    return _scatter_planes(opmath(grad_output), indices, self.shape, 3, lax.scatter_add)


@lowers("aten::max_unpool2d")
def max_unpool2d(self: Any, indices: Any, output_size: Ints) -> Any:
    return _scatter_planes(self, indices, (*self.shape[:-2], *output_size), 2, lax.scatter)


@lowers("aten::max_unpool3d")
def max_unpool3d(self: Any, indices: Any, output_size: Ints, stride: Ints, padding: Ints) -> Any:
    return _scatter_planes(self, indices, (*self.shape[:-3], *output_size), 3, lax.scatter)


@lowers("aten::avg_pool2d", "aten::avg_pool3d")
def avg_pool(
    self: Any,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    out: OutSpec,
) -> Any:
    n = _pooled_dims(kernel_size, self)
    kernel, padding = ntuple(kernel_size, n), ntuple(padding, n)
    stride = ntuple(stride, n) if len(stride) else kernel
    sizes, inputs, lead = out.shape[-n:], self.shape[-n:], self.ndim - n
    pads = [(p, (o - 1) * s + k - size - p) for p, o, s, k, size in zip(padding, sizes, stride, kernel, inputs)]
    x = lax.pad(opmath(self), zero(opmath(self)), [(0, 0, 0)] * lead + [(low, high, 0) for low, high in pads])
    ones = (1,) * lead
    total = lax.reduce_window(x, zero(x), lax.add, (*ones, *kernel), (*ones, *stride), "VALID")
    return _divide(total, _divisor(inputs, sizes, kernel, stride, padding, count_include_pad, divisor_override))


@lowers("aten::avg_pool2d_backward", "aten::avg_pool3d_backward")
def avg_pool_backward(
    grad_output: Any,
    self: Any,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    n = _pooled_dims(kernel_size, self)
    kernel, padding = ntuple(kernel_size, n), ntuple(padding, n)
    stride = ntuple(stride, n) if len(stride) else kernel
    sizes, inputs, lead = grad_output.shape[-n:], self.shape[-n:], self.ndim - n
    divisor = _divisor(inputs, sizes, kernel, stride, padding, count_include_pad, divisor_override)
    grad = _divide(opmath(grad_output), divisor)
    for i in range(n):
        window = np.arange(sizes[i])[:, None] * stride[i] - padding[i] + np.arange(kernel[i])
        valid = (window >= 0) & (window < inputs[i])
        table, _, back = transpose_taps(window, inputs[i], valid=valid)
        grad = sum_taps(grad, lead + i, table, valid=back)
    return grad


@lowers(
    "aten::_adaptive_avg_pool2d",
    "aten::_adaptive_avg_pool3d",
    "aten::adaptive_avg_pool2d.out",
    "aten::adaptive_avg_pool3d.out",
)
def adaptive_avg_pool(self: Any, output_size: Ints, *, out: OutSpec) -> Any:
    n = _pooled_dims(output_size, self)
    x, lead, counts = opmath(self), self.ndim - n, np.ones([1] * n)
    for i, size in enumerate(out.shape[-n:]):
        table, valid = _adaptive_windows(self.shape[lead + i], size)
        x = sum_taps(x, lead + i, table, valid=valid)
        counts = counts * valid.sum(1).reshape([-1 if j == i else 1 for j in range(n)])
    return _divide(x, counts)


@lowers("aten::_adaptive_avg_pool2d_backward")
def adaptive_avg_pool2d_backward(grad_output: Any, self: Any) -> Any:
    return _adaptive_avg_backward(opmath(grad_output), self.shape, 2)


@lowers("aten::_adaptive_avg_pool3d_backward")
def adaptive_avg_pool3d_backward(grad_output: Any, self: Any) -> Any:
    return _adaptive_avg_backward(opmath(grad_output), self.shape, 3)


def _adaptive_avg_backward(grad: Any, shape: Ints, n: int) -> Any:
    for ax in range(len(shape) - n, len(shape)):
        table, valid = _adaptive_windows(shape[ax], grad.shape[ax])
        grad = _divide(grad, valid.sum(1).reshape([-1 if i == ax else 1 for i in range(grad.ndim)]))
        back, _, back_valid = transpose_taps(table, shape[ax], valid=valid)
        grad = sum_taps(grad, ax, back, valid=back_valid)
    return grad


def _pooled_dims(kernel_size: Ints, x: Any) -> int:
    """2 or 3: the list's length, or what the rank leaves open when one value stands for all."""
    return len(kernel_size) if len(kernel_size) > 1 else max(x.ndim - 2, 2)


def _lowest(x: Any) -> Any:
    dtype = np.dtype(x.dtype)
    return np.asarray(-np.inf, dtype) if jnp.issubdtype(dtype, jnp.inexact) else np.asarray(jnp.iinfo(dtype).min, dtype)


def _plane_index(sizes: Ints) -> Any:
    """Position of each element in its plane (or volume), the number that PyTorch's pooling indices count in."""
    return lax.iota("int32", math.prod(sizes)).reshape(sizes)


def _later(best: Pair, new: Pair) -> Pair:
    """The better of two, `new` being later in its window."""
    (v, i), (w, j) = best, new
    better = (w > v) | (i < 0)
    if jnp.issubdtype(v.dtype, jnp.inexact):
        better = better | (w != w)
    return jnp.where(better, w, v), jnp.where(better, j, i)


def _better(a: Pair, b: Pair) -> Pair:
    """The better of two in any order: NaN over numbers, the last NaN, the first of equals, all over padding (-1)."""
    (v, i), (w, j) = a, b
    v_nan, w_nan = v != v, w != w
    equal = (w == v) & (j >= 0) & ((j < i) | (i < 0))
    better = (w_nan & (~v_nan | (j > i))) | (~v_nan & ((w > v) | equal))
    return jnp.where(better, w, v), jnp.where(better, j, i)


def _window_maximum(values: Any, index: Any, kernel: Ints, stride: Ints, dilation: Ints) -> Pair:
    ones = (1,) * (values.ndim - len(kernel))
    return lax.reduce_window(
        (values, jnp.broadcast_to(index, values.shape)),
        (_lowest(values), np.int32(-1)),
        _better,
        (*ones, *kernel),
        (*ones, *stride),
        "VALID",
        window_dilation=(*ones, *dilation),
    )


def _scatter_planes(source: Any, indices: Any, shape: Ints, n: int, combine: Any) -> Any:
    """Put the elements of each plane of `source` at their `indices` in a plane of zeros of `shape`."""
    size = math.prod(shape[-n:])
    planes = math.prod(shape[:-n])
    check_bounds(indices, size, source.ndim - n, lower=0)
    if source.size == 0 or size == 0:
        return jnp.zeros(shape, source.dtype)
    flat = indices.reshape(planes, -1) + np.arange(planes, dtype=np.int64)[:, None] * size
    flat = jnp.where((indices.reshape(planes, -1) < size) & (indices.reshape(planes, -1) >= 0), flat, planes * size)
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    result = combine(
        jnp.zeros(planes * size, source.dtype), flat.reshape(-1, 1), source.reshape(-1), numbers, mode="drop"
    )
    return result.reshape(shape)


def _divisor(
    inputs: Ints, sizes: Ints, kernel: Ints, stride: Ints, padding: Ints, include_pad: bool, override: int | None
) -> np.ndarray:
    """How many elements each window counts, in the shape of the pooled plane."""
    if override is not None:
        return np.asarray(override)
    counts = np.ones([1] * len(inputs))
    for i, size in enumerate(inputs):
        start = np.arange(sizes[i]) * stride[i] - padding[i]
        stop = np.minimum(start + kernel[i], size + padding[i])
        if not include_pad:
            start, stop = np.maximum(start, 0), np.minimum(stop, size)
        counts = counts * np.maximum(stop - start, 1).reshape([-1 if j == i else 1 for j in range(len(inputs))])
    return counts


def _divide(total: Any, counts: np.ndarray) -> Any:
    if jnp.issubdtype(total.dtype, jnp.integer):
        return lax.div(total, jnp.broadcast_to(counts.astype(total.dtype), total.shape))
    return total / counts.astype(total.dtype)


def _adaptive_windows(size: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """The window of each output as a table of positions, and which entries are real (the others repeat the last)."""
    i = np.arange(outputs)
    start, stop = i * size // max(outputs, 1), -(-(i + 1) * size // max(outputs, 1))
    window = start[:, None] + np.arange(max(int((stop - start).max(initial=1)), 1))
    return np.minimum(window, stop[:, None] - 1), window < stop[:, None]
