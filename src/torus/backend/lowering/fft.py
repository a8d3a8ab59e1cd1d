"""Discrete Fourier transforms, one axis after another; sizes and normalization as PyTorch's three primitives say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torus.backend.lowering.apply import cast, current
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import OutSpec, lowers

_NONE, _BY_ROOT = 0, 1
"""PyTorch's numbers for: as they are, divided by the root of the number of points; else by their number."""


def _scale(x: Any, points: int, normalization: int) -> Any:
    if normalization == _NONE:
        return x
    return x * jnp.asarray(1 / (math.sqrt(points) if normalization == _BY_ROOT else points), jnp.finfo(x.dtype).dtype)


def _transform(x: Any, axis: int, kind: Any, length: int) -> Any:
    """One unnormalized transform along `axis`, of `length` points."""
    if current().platform == "tpu" and jnp.finfo(x.dtype).bits == 64:
        raise NotImplementedError("Fourier transforms in double precision: TPUs have none")
    moved = lax.fft(jnp.moveaxis(x, axis, -1), kind, (length,))
    return jnp.moveaxis(moved, -1, axis)


def _along(x: Any, axes: Sequence[int], forward: bool) -> Any:
    for axis in axes:
        points = x.shape[axis]
        x = _transform(x, axis, lax.FftType.FFT if forward else lax.FftType.IFFT, points)
        x = x if forward else x * jnp.asarray(points, jnp.finfo(x.dtype).dtype)  # XLA divides by the number of points
    return x


def _points(shape: Sequence[int], axes: Sequence[int]) -> int:
    return math.prod(shape[axis] for axis in axes)


@lowers("aten::_fft_c2c")
def fft_c2c(x: Any, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    """Complex to complex."""
    return _scale(_along(x, dim, forward), _points(x.shape, dim), normalization)


@lowers("aten::_fft_r2c")
def fft_r2c(x: Any, dim: Sequence[int], normalization: int, onesided: bool, *, out: OutSpec) -> Any:
    """Real to complex; `onesided` leaves out the half of the last axis that mirrors the other."""
    points = _points(x.shape, dim)
    if not onesided:
        return _scale(_along(cast(x, out.dtype), dim, True), points, normalization)
    half = _transform(x, dim[-1], lax.FftType.RFFT, x.shape[dim[-1]])
    return _scale(_along(half, dim[:-1], True), points, normalization)


@lowers("aten::_fft_c2r")
def fft_c2r(x: Any, dim: Sequence[int], normalization: int, last_dim_size: int, *, out: OutSpec) -> Any:
    """Complex, half of it, to real: backwards, with `last_dim_size` points along the last axis."""
    real = _transform(_along(x, dim[:-1], False), dim[-1], lax.FftType.IRFFT, last_dim_size)
    real = real * jnp.asarray(last_dim_size, real.dtype)
    return _scale(real, _points(out.shape, dim), normalization)
