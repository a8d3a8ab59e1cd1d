"""Resampling: nearest, linear, cubic and antialiased interpolation, grid sampling, im2col, and the gradients.

Interpolation is separable. For one axis it is a table of taps (which elements, with which weights) made with ATen's
arithmetic in the tensor's opmath dtype; the gradient is the transposed table, so that nothing is scattered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from torus.backend.lowering.axes import opmath, pad_axis, sum_taps, take_static, transpose_taps, zero
from torus.backend.lowering.lazy import jax, jnp, lax
from torus.backend.lowering.registry import OutSpec, lowers

Ints = Sequence[int]
SCALES = ("scales", "scales_d", "scales_h", "scales_w")


class Taps(NamedTuple):
    """For each output position the input positions it reads and their weights."""

    table: np.ndarray
    weight: np.ndarray | None


TapMaker = Callable[[int, int, bool, "float | None", type], Taps]


def _scale(size: int, outputs: int, align_corners: bool, scale: float | None, real: type) -> Any:
    """Input positions for one output position."""
    if align_corners:
        return real(size - 1) / real(outputs - 1) if outputs > 1 else real(0)
    return real(1.0 / scale) if scale is not None and scale > 0 else real(size) / real(outputs)


def _centers(size: int, outputs: int, align_corners: bool, scale: float | None, real: type) -> np.ndarray:
    step = _scale(size, outputs, align_corners, scale, real)
    place: np.ndarray = np.arange(outputs).astype(real)
    return step * place if align_corners else step * (place + real(0.5)) - real(0.5)


def _nearest(size: int, outputs: int, align_corners: bool, scale: float | None, real: type) -> Taps:
    step = _scale(size, outputs, False, scale, real)
    return _nearest_taps(np.arange(outputs).astype(real) * step, size)


def _nearest_exact(size: int, outputs: int, align_corners: bool, scale: float | None, real: type) -> Taps:
    step = _scale(size, outputs, False, scale, real)
    return _nearest_taps((np.arange(outputs).astype(real) + real(0.5)) * step, size)


def _nearest_taps(place: np.ndarray, size: int) -> Taps:
    return Taps(np.minimum(np.floor(place).astype(np.int64), size - 1)[:, None], None)


def _linear(size: int, outputs: int, align_corners: bool, scale: float | None, real: type) -> Taps:
    place = np.maximum(_centers(size, outputs, align_corners, scale, real), real(0))
    first = np.minimum(place.astype(np.int64), size - 1)
    second = np.minimum(first + 1, size - 1)
    part = np.clip(place - first.astype(real), real(0), real(1))
    return Taps(np.stack([first, second], 1), np.stack([real(1) - part, part], 1))


def _cubic(size: int, outputs: int, align_corners: bool, scale: float | None, real: type) -> Taps:
    place = _centers(size, outputs, align_corners, scale, real)
    first = np.floor(place)
    t = np.clip(place - first, real(0), real(1))
    table = np.clip(first.astype(np.int64)[:, None] + np.arange(-1, 3), 0, size - 1)
    return Taps(table, np.stack([_cubic_far(t + 1), _cubic_near(t), _cubic_near(1 - t), _cubic_far(2 - t)], 1))


def _cubic_near(x: Any, a: float = -0.75) -> Any:
    return ((a + 2) * x - (a + 3)) * x * x + 1


def _cubic_far(x: Any, a: float = -0.75) -> Any:
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


def _antialiased(reach: int, window: Callable[[np.ndarray], np.ndarray]) -> TapMaker:
    """Taps of a filter that widens when it shrinks the image, as Pillow resamples."""

    def taps(size: int, outputs: int, align_corners: bool, scale: float | None, real: type) -> Taps:
        step = float(_scale(size, outputs, align_corners, scale, real))
        widening = max(step, 1.0)
        support = reach * widening
        center = step * (np.arange(outputs) + 0.5)
        start = np.maximum((center - support + 0.5).astype(np.int64), 0)
        stop = np.minimum((center + support + 0.5).astype(np.int64), size)
        table = start[:, None] + np.arange(max(int((stop - start).max(initial=1)), 1))
        weight = window((table - center[:, None] + 0.5) / widening) * (table < stop[:, None])
        total = weight.sum(1, keepdims=True)
        return Taps(np.minimum(table, size - 1), weight / np.where(total == 0, 1, total))

    return taps


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def _cubic_window(x: np.ndarray) -> np.ndarray:
    x = np.abs(x)
    return np.where(x < 1, _cubic_near(x, -0.5), np.where(x < 2, _cubic_far(x, -0.5), 0))


def _lanczos_window(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


def _resample(make: TapMaker, x: Any, sizes: Ints, align_corners: bool, scales: Sequence[float | None]) -> Any:
    if make in (_nearest, _nearest_exact):
        y = x
    else:
        y = lax.convert_element_type(x, "float32") if jnp.issubdtype(x.dtype, jnp.integer) else opmath(x)
    real = np.float64 if str(y.dtype) == "float64" else np.float32
    for ax in range(x.ndim - 1, 1, -1):
        taps = make(x.shape[ax], sizes[ax - 2], align_corners, scales[ax - 2], real)
        if taps.weight is None:
            y = take_static(y, ax, taps.table[:, 0])
        elif x.shape[ax] != sizes[ax - 2] or not _identity(taps, x.shape[ax]):
            y = sum_taps(y, ax, taps.table, taps.weight)
    return jnp.clip(jnp.round(y), 0, 255) if str(x.dtype) == "uint8" and y is not x else y


def _identity(taps: Taps, size: int) -> bool:
    assert taps.weight is not None
    dense = np.zeros((size, size))
    np.add.at(dense, (np.arange(size)[:, None], taps.table), taps.weight)
    return np.array_equal(dense, np.eye(size))


def _resample_backward(
    make: TapMaker, grad: Any, input_size: Ints, align_corners: bool, scales: Sequence[float | None]
) -> Any:
    g = opmath(grad)
    real = np.float64 if str(g.dtype) == "float64" else np.float32
    for ax in range(2, grad.ndim):
        taps = make(input_size[ax], grad.shape[ax], align_corners, scales[ax - 2], real)
        table, weight, valid = transpose_taps(taps.table, input_size[ax], taps.weight)
        g = sum_taps(g, ax, table, None if taps.weight is None else weight, valid)
    return g


def _register(name: str, make: TapMaker, corners: bool) -> None:
    """The op `name` and its gradient. After the sizes come align_corners, where there is one, and the scales."""

    def rule(self: Any, output_size: Ints, *options: Any, out: OutSpec) -> Any:
        align_corners, scales = (options[0], options[1:]) if corners else (False, options)
        return _resample(make, self, out.shape[2:], align_corners, _padded(scales, self.ndim - 2))

    def backward(grad_output: Any, output_size: Ints, input_size: Ints, *options: Any) -> Any:
        align_corners, scales = (options[0], options[1:]) if corners else (False, options)
        return _resample_backward(make, grad_output, input_size, align_corners, _padded(scales, grad_output.ndim - 2))

    rule.__name__, backward.__name__ = name, f"{name}_backward"
    lowers(f"aten::{name}", static=SCALES)(rule)
    lowers(f"aten::{name}_backward", static=SCALES)(backward)


def _padded(scales: Sequence[float | None], n: int) -> list[float | None]:
    return [*scales, *[None] * (n - len(scales))]


for _n in (1, 2, 3):
    _register(f"upsample_nearest{_n}d", _nearest, corners=False)
    _register(f"_upsample_nearest_exact{_n}d", _nearest_exact, corners=False)
_register("upsample_linear1d", _linear, corners=True)
_register("upsample_bilinear2d", _linear, corners=True)
_register("upsample_trilinear3d", _linear, corners=True)
_register("upsample_bicubic2d", _cubic, corners=True)
_register("_upsample_bilinear2d_aa", _antialiased(1, _triangle), corners=True)
_register("_upsample_bicubic2d_aa", _antialiased(2, _cubic_window), corners=True)
_register("_upsample_lanczos2d_aa", _antialiased(3, _lanczos_window), corners=True)


@lowers("aten::im2col")
def im2col(self: Any, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints, *, out: OutSpec) -> Any:
    x = self if self.ndim == 4 else self[None]
    for i in (1, 0):
        x = pad_axis(x, 2 + i, padding[i], padding[i])
        x = take_static(x, 2 + i, _windows(x.shape[2 + i], kernel_size[i], dilation[i], stride[i]))
    # (N, C, kh, oh, kw, ow), the windows of each axis being (offset, position)
    return x.transpose(0, 1, 2, 4, 3, 5).reshape(out.shape)


@lowers("aten::col2im")
def col2im(
    self: Any, output_size: Ints, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints, *, out: OutSpec
) -> Any:
    x = self if self.ndim == 3 else self[None]
    sizes = [n + 2 * p for n, p in zip(output_size, padding)]
    tables = [_windows(n, k, d, s) for n, k, d, s in zip(sizes, kernel_size, dilation, stride)]
    rows, columns = tables[0].shape[1], tables[1].shape[1]
    channels = x.shape[1] // math.prod(kernel_size)
    x = opmath(x).reshape(x.shape[0], channels, *kernel_size, rows, columns).transpose(0, 1, 2, 4, 3, 5)
    x = x.reshape(*x.shape[:2], kernel_size[0] * rows, kernel_size[1] * columns)
    for i in (0, 1):
        back, _, valid = transpose_taps(tables[i].reshape(-1, 1), sizes[i])
        x = sum_taps(x, 2 + i, back, valid=valid)
        x = pad_axis(x, 2 + i, -padding[i], -padding[i])
    return x.reshape(out.shape)


def _windows(size: int, kernel: int, dilation: int, stride: int) -> np.ndarray:
    count = (size - dilation * (kernel - 1) - 1) // stride + 1
    return np.arange(kernel)[:, None] * dilation + np.arange(count) * stride


@lowers("aten::grid_sampler_2d", "aten::grid_sampler_3d")
def grid_sampler(input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    x, where = opmath(input), opmath(grid)
    sizes = x.shape[2:]
    # The grid names the last dimension first.
    place = [_unnormalize(where[..., len(sizes) - 1 - i], n, align_corners) for i, n in enumerate(sizes)]
    taps = [_grid_taps(p, n, interpolation_mode, padding_mode, align_corners) for p, n in zip(place, sizes)]
    # Positions are (N, ...) and the taps of dimension i stand at axis 1 + i, so that one gather reads all corners.
    others = [tuple(1 + j for j in range(len(sizes)) if j != i) for i in range(len(sizes))]
    read = _read(x, [jnp.expand_dims(at, other) for (at, _), other in zip(taps, others)])
    for (_, weight), other in zip(taps, others):
        if weight is not None:
            read = read * jnp.expand_dims(weight, other)[:, None]
    return read.sum(axis=tuple(range(2, 2 + len(sizes))))


def _grid_taps(p: Any, size: int, interpolation: int, padding: int, align_corners: bool) -> tuple[Any, Any]:
    """Whole positions (N, taps, ...) around `p` along one dimension, and their weights (None: one tap of weight 1)."""
    if interpolation != 2:
        p = _bounded(p, size, padding, align_corners)
    if interpolation == 1:
        return jnp.round(p)[:, None], None
    low = lax.stop_gradient(jnp.floor(p))
    t = p - low
    if interpolation == 0:
        return jnp.stack([low, low + 1], 1), jnp.stack([1 - t, t], 1)
    at = [_bounded(low + k, size, padding, align_corners) for k in (-1, 0, 1, 2)]
    weights = [_cubic_far(t + 1), _cubic_near(t), _cubic_near(1 - t), _cubic_far(2 - t)]
    return jnp.floor(jnp.stack(at, 1)), jnp.stack(weights, 1)


@lowers("aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward")
def grid_sampler_backward(
    grad_output: Any,
    input: Any,
    grid: Any,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> Any:
    def sample(x: Any, where: Any) -> Any:
        return grid_sampler(x, where, interpolation_mode, padding_mode, align_corners)

    _, pullback = jax.vjp(sample, opmath(input), opmath(grid))
    grad_input, grad_grid = pullback(opmath(grad_output))
    return grad_input if output_mask[0] else None, grad_grid if output_mask[1] else None


def _unnormalize(p: Any, size: int, align_corners: bool) -> Any:
    """From [-1, 1] to positions of elements."""
    return (p + 1) / 2 * (size - 1) if align_corners else ((p + 1) * size - 1) / 2


def _bounded(p: Any, size: int, padding_mode: int, align_corners: bool) -> Any:
    if padding_mode == 0:
        return p
    if padding_mode == 2:
        p = _reflect(p, 0, 2 * (size - 1)) if align_corners else _reflect(p, -1, 2 * size - 1)
    # The gradient is zero from the border on, the border included.
    return jnp.where(p <= 0, zero(p), jnp.where(p >= size - 1, jnp.asarray(size - 1, p.dtype), p))


def _reflect(p: Any, twice_low: int, twice_high: int) -> Any:
    if twice_low == twice_high:
        return zero(p) * lax.stop_gradient(p)
    low, span = twice_low / 2, (twice_high - twice_low) / 2
    offset = p - low
    away = jnp.where(offset < 0, -offset, offset)
    flips = lax.stop_gradient(jnp.floor(away / span))
    extra = away - flips * span
    return jnp.where(flips % 2 == 0, extra + low, span - extra + low)


def _read(x: Any, place: list[Any]) -> Any:
    """Elements of `x` (N, C, ...) at whole positions (N, ...) in each dimension, broadcast together; zero outside."""
    inside, flat = jnp.ones((), bool), jnp.zeros((), "int64")
    for p, n in zip(place, x.shape[2:]):
        ok = (p >= 0) & (p < n)
        inside, flat = inside & ok, flat * n + jnp.where(ok, p, 0).astype("int64")
    planes = x.reshape(*x.shape[:2], -1)
    picked = jnp.take_along_axis(planes, flat.reshape(flat.shape[0], 1, -1), axis=2, mode="clip")
    return jnp.where(inside[:, None], picked.reshape(*x.shape[:2], *flat.shape[1:]), zero(x))
