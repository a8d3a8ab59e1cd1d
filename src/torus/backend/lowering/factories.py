"""Tensors made from nothing or from scalars: fills, ranges, identity, triangles, and complex numbers from their parts.

Sizes and dtype come from the promised result. Ranges are computed in the type that ATen's CPU kernels step in.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from torus.backend.lowering.apply import as_element, cast
from torus.backend.lowering.elementwise import select
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import OutSpec, lowers


@lowers("aten::fill.Scalar", "aten::fill.Tensor", fits=("value",))
def fill(x: Any, value: Any, *, out: OutSpec) -> Any:
    """One value everywhere."""
    return jnp.broadcast_to(as_element(value, out.dtype), out.shape)


@lowers("aten::zero")
def zero(x: Any, *, out: OutSpec) -> Any:
    """Zeros."""
    return jnp.zeros(out.shape, out.dtype)


@lowers("aten::_efficientzerotensor")
def zero_tensor(size: Any, *, out: OutSpec, **_: Any) -> Any:
    """Zeros that autograd makes for a tangent it lacks."""
    return jnp.zeros(out.shape, out.dtype)


# --- ranges


@lowers("aten::arange", wide=True, range_length=True)
def arange(end: Any, *, out: OutSpec, **_: Any) -> Any:
    """0, 1, ... up to `end`, which only decided the size."""
    return lax.iota(_steps_in(out), out.shape[0])


@lowers(
    "aten::arange.start", "aten::arange.start_step", "aten::range", "aten::range.step", wide=True, range_length=True
)
def arange_step(start: Any, end: Any, step: Any = 1, *, out: OutSpec, **_: Any) -> Any:
    """start + step * i; an integer range truncates start and step before it walks."""
    steps = _steps_in(out)
    start, step = cast(jnp.asarray(start), steps), cast(jnp.asarray(step), steps)
    return start + step * lax.iota(steps, out.shape[0])


def _steps_in(out: OutSpec) -> str:
    return "float64" if jnp.issubdtype(out.dtype, jnp.floating) else "int64"


@lowers(
    "aten::linspace",
    "aten::linspace.Tensor_Tensor",
    "aten::linspace.Tensor_Scalar",
    "aten::linspace.Scalar_Tensor",
    wide=True,
    fits=("start", "end"),
)
def linspace(start: Any, end: Any, steps: int, *, out: OutSpec, **_: Any) -> Any:
    """Evenly spaced values, both ends exact: the first half is counted from the start, the second from the end."""
    return spaced(start, end, steps, out)


@lowers(
    "aten::logspace",
    "aten::logspace.Tensor_Tensor",
    "aten::logspace.Tensor_Scalar",
    "aten::logspace.Scalar_Tensor",
    wide=True,
    fits=("start", "end"),
)
def logspace(start: Any, end: Any, steps: int, base: Any = 10.0, *, out: OutSpec, **_: Any) -> Any:
    """`base` to the power of evenly spaced exponents."""
    exponents = spaced(start, end, steps, out)
    base = cast(jnp.asarray(base), str(exponents.dtype))
    return lax.pow(jnp.broadcast_to(base, exponents.shape), exponents)


def spaced(start: Any, end: Any, steps: int, out: OutSpec) -> Any:
    """Evenly spaced values, counted from the nearer end, in float64 (complex numbers in their own type)."""
    dtype = out.dtype if out.dtype.startswith("complex") else "float64"
    start, end = cast(cast(start, out.dtype), dtype), cast(cast(end, out.dtype), dtype)
    if steps <= 1:
        return jnp.broadcast_to(start, out.shape)
    width = (end - start) / (steps - 1)
    index = lax.iota("int64", steps)
    return select(index < steps // 2, start + width * cast(index, dtype), end - width * cast(steps - 1 - index, dtype))


# --- matrices


@lowers("aten::eye", "aten::eye.m")
def eye(n: int, m: int | None = None, *, out: OutSpec, **_: Any) -> Any:
    """Ones on the diagonal."""
    return cast(_offsets(out.shape) == 0, out.dtype)


def _offsets(shape: tuple[int, ...]) -> Any:
    """Column minus row, over the last two sizes."""
    size = tuple(shape[-2:])
    return lax.broadcasted_iota("int64", size, 1) - lax.broadcasted_iota("int64", size, 0)


@lowers("aten::tril", runtime=("diagonal",))
def tril(x: Any, diagonal: Any = 0) -> Any:
    """The lower triangle, up to and including `diagonal`."""
    return select(_offsets(x.shape) <= diagonal, x, jnp.zeros((), x.dtype))


@lowers("aten::triu", runtime=("diagonal",))
def triu(x: Any, diagonal: Any = 0) -> Any:
    """The upper triangle, from `diagonal` on."""
    return select(_offsets(x.shape) >= diagonal, x, jnp.zeros((), x.dtype))


@lowers("aten::tril_indices")
def tril_indices(row: int, col: int, offset: int = 0, *, out: OutSpec, **_: Any) -> Any:
    """Row and column numbers of the lower triangle, row by row."""
    lengths = np.clip(np.arange(row) + offset + 1, 0, col)
    return _indices(lengths, np.zeros(row, np.int64), out)


@lowers("aten::triu_indices")
def triu_indices(row: int, col: int, offset: int = 0, *, out: OutSpec, **_: Any) -> Any:
    """Row and column numbers of the upper triangle, row by row."""
    first = np.clip(np.arange(row) + offset, 0, col)
    return _indices(col - first, first, out)


def _indices(lengths: np.ndarray[Any, Any], first: np.ndarray[Any, Any], out: OutSpec) -> Any:
    """Coordinates of rows with the given lengths and first columns; only one number a row is kept in the program."""
    if out.shape[1] == 0:
        return jnp.zeros(out.shape, out.dtype)
    starts = np.cumsum(lengths) - lengths
    position = lax.iota("int64", out.shape[1])
    rows = jnp.searchsorted(jnp.asarray(starts), position, side="right") - 1
    return jnp.stack([rows, position - jnp.asarray(starts - first)[rows]])


# --- complex numbers


@lowers("aten::complex")
def complex_(real: Any, imag: Any) -> Any:
    """A complex number from its parts."""
    if real.dtype != imag.dtype:
        raise RuntimeError(f"complex takes two tensors of one dtype, but got {real.dtype} and {imag.dtype}")
    return lax.complex(*_wide_pair(real, imag))


@lowers("aten::polar")
def polar(magnitude: Any, angle: Any) -> Any:
    """A complex number from its magnitude and angle."""
    magnitude, angle = _wide_pair(magnitude, angle)
    return lax.complex(magnitude * lax.cos(angle), magnitude * lax.sin(angle))


def _wide_pair(x: Any, y: Any) -> tuple[Any, Any]:
    x, y = jnp.broadcast_arrays(x, y)
    return (x.astype("float32"), y.astype("float32")) if x.dtype.itemsize == 2 else (x, y)
