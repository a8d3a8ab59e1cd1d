"""Reductions: sums, extremes, moments, norms and order statistics.

Half precisions accumulate in float32, integers in the dtype PyTorch promises (int64 for sums), moments take two passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torus.backend.lowering.apply import cast, current
from torus.backend.lowering.dtypes import OPMATH
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import Bounds, OutSpec, lowers

Dims = int | Sequence[int] | None


def axes_of(dim: Dims, ndim: int) -> tuple[int, ...]:
    """The axes that `dim` names, counted from the front. None and an empty list name all of them."""
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return tuple(range(ndim))
    if ndim == 0:
        return ()
    return tuple(d % ndim for d in ([dim] if isinstance(dim, int) else dim))


def axis_of(dim: int, ndim: int) -> int:
    """One axis, counted from the front; 0 for a 0-d tensor."""
    return dim % max(ndim, 1)


def count(x: Any, axes: Sequence[int]) -> int:
    """How many elements a reduction over `axes` joins."""
    return math.prod(x.shape[a] for a in axes)


def widen(x: Any) -> Any:
    """Half precisions as float32; anything else as it is."""
    return cast(x, OPMATH.get(str(x.dtype), str(x.dtype)))


def opmath(dtype: str) -> str:
    """The dtype in which results of `dtype` are computed."""
    return OPMATH.get(dtype, dtype)


def carried(dtype: str) -> str:
    """The dtype in which the CPU's kernels carry scans and moments: float64 for float32. Accelerators do not."""
    return {"float32": "float64", "complex64": "complex128"}.get(dtype, dtype) if current().platform == "cpu" else dtype


def isnan(x: Any) -> Any:
    """True where `x` is NaN; all False for integers."""
    return x != x


def _accumulator(dtype: str) -> str:
    return "int64" if dtype == "bool" else opmath(dtype)


def _at_least_1d(x: Any) -> Any:
    return x.reshape(1) if x.ndim == 0 else x


def _nonzero(x: Any) -> Any:
    return cast(x, "bool")


# Sums and products


@lowers("aten::sum.dim_IntList")
def sum_dim(x: Any, dim: Dims, keepdim: bool = False, *, dtype: Any = None, out: OutSpec) -> Any:
    return lax.reduce_sum(cast(x, _accumulator(out.dtype)), axes_of(dim, x.ndim)).reshape(out.shape)


@lowers("aten::sum")
def sum_all(x: Any, *, dtype: Any = None, out: OutSpec) -> Any:
    return sum_dim(x, None, out=out)


@lowers("aten::nansum")
def nansum(x: Any, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None, out: OutSpec) -> Any:
    return sum_dim(jnp.where(isnan(x), jnp.zeros((), x.dtype), x), dim, out=out)


@lowers("aten::mean.dim")
def mean_dim(x: Any, dim: Dims, keepdim: bool = False, *, dtype: Any = None, out: OutSpec) -> Any:
    x = cast(x, opmath(out.dtype))
    axes = axes_of(dim, x.ndim)
    return (lax.reduce_sum(x, axes) / jnp.asarray(count(x, axes), x.dtype)).reshape(out.shape)


@lowers("aten::mean")
def mean_all(x: Any, *, dtype: Any = None, out: OutSpec) -> Any:
    return mean_dim(x, None, out=out)


@lowers("aten::prod.dim_int")
def prod_dim(x: Any, dim: Dims, keepdim: bool = False, *, dtype: Any = None, out: OutSpec) -> Any:
    return lax.reduce_prod(cast(x, _accumulator(out.dtype)), axes_of(dim, x.ndim)).reshape(out.shape)


@lowers("aten::prod")
def prod_all(x: Any, *, dtype: Any = None, out: OutSpec) -> Any:
    return prod_dim(x, None, out=out)


@lowers("aten::count_nonzero", "aten::count_nonzero.dim_IntList")
def count_nonzero(x: Any, dim: Dims = None, *, out: OutSpec) -> Any:
    return lax.reduce_sum(cast(_nonzero(x), "int64"), axes_of(dim, x.ndim))


# Truth


def _fold_truth(fold: Any, x: Any, axes: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    return fold(_nonzero(x), axes).reshape(shape)


@lowers("aten::any", "aten::_is_any_true")
def any_all(x: Any, *, out: OutSpec) -> Any:
    return _fold_truth(lax.reduce_or, x, axes_of(None, x.ndim), out.shape)


@lowers("aten::all", "aten::_is_all_true")
def all_all(x: Any, *, out: OutSpec) -> Any:
    return _fold_truth(lax.reduce_and, x, axes_of(None, x.ndim), out.shape)


def _truth_axes(dim: Dims, ndim: int) -> tuple[int, ...]:
    """Unlike in other reductions, an empty list reduces nothing."""
    return () if dim is not None and not isinstance(dim, int) and len(dim) == 0 else axes_of(dim, ndim)


@lowers("aten::any.dim", "aten::any.dims")
def any_dim(x: Any, dim: Dims = None, keepdim: bool = False, *, out: OutSpec) -> Any:
    return _fold_truth(lax.reduce_or, x, _truth_axes(dim, x.ndim), out.shape)


@lowers("aten::all.dim", "aten::all.dims")
def all_dim(x: Any, dim: Dims = None, keepdim: bool = False, *, out: OutSpec) -> Any:
    return _fold_truth(lax.reduce_and, x, _truth_axes(dim, x.ndim), out.shape)


# Extremes


def _refuse_empty(x: Any, axes: Sequence[int]) -> None:
    for axis in axes:
        if x.shape[axis] == 0:
            raise IndexError(f"Expected reduction dim {axis} to have non-zero size.")


def _refuse_no_elements(x: Any) -> None:
    if x.size == 0:
        raise RuntimeError("Expected reduction dim to be specified for input.numel() == 0.")


def fold_max(x: Any, axes: Sequence[int]) -> Any:
    """Largest element over `axes`; NaN wins."""
    _refuse_empty(x, axes)
    return lax.reduce_or(x, axes) if x.dtype == bool else lax.reduce_max(x, axes)


def fold_min(x: Any, axes: Sequence[int]) -> Any:
    """Smallest element over `axes`; NaN wins."""
    _refuse_empty(x, axes)
    return lax.reduce_and(x, axes) if x.dtype == bool else lax.reduce_min(x, axes)


def _arg(find: Any, x: Any, dim: int | None, shape: tuple[int, ...]) -> Any:
    """Index of the first extreme; a NaN counts as extreme."""
    x = cast(x, "uint8") if x.dtype == bool else x
    x = x.reshape(-1) if dim is None else _at_least_1d(x)
    return find(x, axis_of(dim or 0, x.ndim), "int32").reshape(shape)


@lowers("aten::amax")
def amax(x: Any, dim: Dims = None, keepdim: bool = False, *, out: OutSpec) -> Any:
    return fold_max(x, axes_of(dim, x.ndim)).reshape(out.shape)


@lowers("aten::amin")
def amin(x: Any, dim: Dims = None, keepdim: bool = False, *, out: OutSpec) -> Any:
    return fold_min(x, axes_of(dim, x.ndim)).reshape(out.shape)


@lowers("aten::max")
def max_all(x: Any) -> Any:
    _refuse_no_elements(x)
    return fold_max(x, axes_of(None, x.ndim))


@lowers("aten::min")
def min_all(x: Any) -> Any:
    _refuse_no_elements(x)
    return fold_min(x, axes_of(None, x.ndim))


@lowers("aten::argmax")
def argmax(x: Any, dim: int | None = None, keepdim: bool = False, *, out: OutSpec) -> Any:
    return _arg(lax.argmax, x, dim, out.shape)


@lowers("aten::argmin")
def argmin(x: Any, dim: int | None = None, keepdim: bool = False, *, out: OutSpec) -> Any:
    return _arg(lax.argmin, x, dim, out.shape)


@lowers("aten::max.dim")
def max_dim(x: Any, dim: int, keepdim: bool = False, *, out: tuple[OutSpec, OutSpec]) -> Any:
    values = fold_max(x, axes_of(dim, x.ndim)).reshape(out[0].shape)
    return values, _arg(lax.argmax, x, dim, out[1].shape)


@lowers("aten::min.dim")
def min_dim(x: Any, dim: int, keepdim: bool = False, *, out: tuple[OutSpec, OutSpec]) -> Any:
    values = fold_min(x, axes_of(dim, x.ndim)).reshape(out[0].shape)
    return values, _arg(lax.argmin, x, dim, out[1].shape)


@lowers("aten::aminmax")
def aminmax(x: Any, *, dim: int | None = None, keepdim: bool = False, out: tuple[OutSpec, OutSpec]) -> Any:
    axes = axes_of(dim, x.ndim)
    return fold_min(x, axes).reshape(out[0].shape), fold_max(x, axes).reshape(out[1].shape)


@lowers("aten::_aminmax")
def aminmax_of_all(x: Any) -> Any:
    axes = axes_of(None, x.ndim)
    return fold_min(x, axes).reshape(()), fold_max(x, axes).reshape(())


@lowers("aten::_aminmax.dim")
def aminmax_of_dim(x: Any, dim: int, keepdim: bool = False) -> Any:
    axes = axes_of(dim, x.ndim)
    results = fold_min(x, axes), fold_max(x, axes)
    return [jnp.expand_dims(r, axes) if keepdim else r for r in results] if axes else results


# Moments


def moments(x: Any, axes: Sequence[int]) -> tuple[Any, Any, Any]:
    """Mean, sum of squared deviations, and deviations of `x` over `axes`, dimensions kept.

    Two passes, never E[x^2] - E[x]^2. The mean is taken of distances to one of the elements, so that its rounding is
    small against the deviations even where the elements are far from zero.
    """
    anchor = _first(x, axes)
    distance = x - anchor
    offset = jnp.sum(distance, axes, keepdims=True) / jnp.asarray(count(x, axes), x.real.dtype)
    centred = distance - offset
    return anchor + offset, jnp.sum(_square(centred), axes, keepdims=True), centred


def _first(x: Any, axes: Sequence[int]) -> Any:
    """The first element along `axes`, dimensions kept; zeros where there is none."""
    if count(x, axes) == 0:
        return jnp.zeros([1 if a in axes else n for a, n in enumerate(x.shape)], x.dtype)
    return lax.slice(x, [0] * x.ndim, [1 if a in axes else n for a, n in enumerate(x.shape)])


def _square(x: Any) -> Any:
    """Squared magnitude."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return x.real * x.real + x.imag * x.imag
    return x * x


def _exact_moments(x: Any, axes: Sequence[int]) -> tuple[Any, Any]:
    """Mean and sum of squared deviations, dimensions kept; on the host in float64 for float32, as the CPU's.

    The first pass stays in float32, where it costs no more: what its rounding does to the mean, squared, is nothing.
    """
    wide = carried(str(x.dtype))
    if wide == str(x.dtype):
        return moments(x, axes)[:2]
    anchor = _first(x, axes)
    offset = jnp.sum(x - anchor, axes, keepdims=True) / jnp.asarray(count(x, axes), x.real.dtype)
    mean = anchor.astype(wide) + offset.astype(wide)
    return mean, jnp.sum(_square(x.astype(wide) - mean), axes, keepdims=True)


def _variance(x: Any, dim: Dims, correction: Any) -> tuple[Any, Any]:
    x = widen(x)
    axes = axes_of(dim, x.ndim)
    mean, squares = _exact_moments(x, axes)
    correction = jnp.asarray(1 if correction is None else correction, squares.dtype)
    degrees = jnp.maximum(jnp.asarray(count(x, axes), squares.dtype) - correction, jnp.zeros((), squares.dtype))
    return squares / degrees, mean


@lowers("aten::var.correction")
def var(x: Any, dim: Dims = None, *, correction: Any = None, keepdim: bool = False, out: OutSpec) -> Any:
    return _variance(x, dim, correction)[0].reshape(out.shape)


@lowers("aten::std.correction")
def std(x: Any, dim: Dims = None, *, correction: Any = None, keepdim: bool = False, out: OutSpec) -> Any:
    return lax.sqrt(_variance(x, dim, correction)[0]).reshape(out.shape)


@lowers("aten::var_mean.correction")
def var_mean(
    x: Any, dim: Dims = None, *, correction: Any = None, keepdim: bool = False, out: tuple[OutSpec, OutSpec]
) -> Any:
    variance, mean = _variance(x, dim, correction)
    return variance.reshape(out[0].shape), mean.reshape(out[1].shape)


@lowers("aten::std_mean.correction")
def std_mean(
    x: Any, dim: Dims = None, *, correction: Any = None, keepdim: bool = False, out: tuple[OutSpec, OutSpec]
) -> Any:
    variance, mean = _variance(x, dim, correction)
    return lax.sqrt(variance).reshape(out[0].shape), mean.reshape(out[1].shape)


# Norms


def norm_over(x: Any, p: float, axes: Sequence[int]) -> Any:
    """The `p`-norm of `x` over `axes`; `p` may be 0 (how many are not zero) or an infinity (an extreme)."""
    if p == 0:
        return lax.reduce_sum(cast(_nonzero(x), str(x.real.dtype)), axes)
    if p == 2:
        return lax.sqrt(lax.reduce_sum(_square(x), axes))
    magnitude = lax.abs(x)
    if math.isinf(p):
        return fold_max(magnitude, axes) if p > 0 else fold_min(magnitude, axes)
    if p == 1:
        return lax.reduce_sum(magnitude, axes)
    power = jnp.asarray(p, magnitude.dtype)
    return lax.pow(lax.reduce_sum(lax.pow(magnitude, power), axes), 1 / power)


@lowers("aten::linalg_vector_norm", static=("ord",))
def vector_norm(
    x: Any, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None, out: OutSpec
) -> Any:
    if not jnp.issubdtype(x.dtype, jnp.complexfloating):
        x = cast(x, opmath(out.dtype))
    return norm_over(widen(x), ord, axes_of(dim, x.ndim)).reshape(out.shape)


@lowers("aten::linalg__powsum", static=("ord",))
def powsum(x: Any, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None, out: OutSpec) -> Any:
    magnitude = lax.abs(cast(x, opmath(out.dtype)))
    powers = magnitude * magnitude if ord == 2 else lax.pow(magnitude, jnp.asarray(ord, magnitude.dtype))
    return lax.reduce_sum(powers, axes_of(dim, x.ndim)).reshape(out.shape)


@lowers("aten::norm.Scalar", static=("p",))
def norm_all(x: Any, p: float = 2, *, out: OutSpec) -> Any:
    return vector_norm(x, p, None, out=out)


@lowers("aten::norm.ScalarOpt_dim", "aten::norm.ScalarOpt_dim_dtype", static=("p",))
def norm_dim(x: Any, p: float | None, dim: Dims, keepdim: bool = False, *, dtype: Any = None, out: OutSpec) -> Any:
    return vector_norm(x, 2 if p is None else p, dim, out=out)


@lowers("aten::norm.ScalarOpt_dtype", static=("p",))
def norm_dtype(x: Any, p: float | None, *, dtype: Any, out: OutSpec) -> Any:
    return vector_norm(x, 2 if p is None else p, None, out=out)


@lowers("aten::dist", static=("p",))
def dist(x: Any, y: Any, p: float = 2, *, out: OutSpec) -> Any:
    return vector_norm(x - y, p, None, out=out)


@lowers("aten::renorm", static=("p",), bounds={"maxnorm": Bounds("renorm: expected maxnorm to be >= 0 but got ", 0)})
def renorm(x: Any, p: float, dim: int, maxnorm: Any, *, out: OutSpec) -> Any:
    x = widen(x)
    others = tuple(a for a in range(x.ndim) if a != dim % x.ndim)
    norm = lax.expand_dims(norm_over(x, p, others), others)
    maxnorm = jnp.asarray(maxnorm, norm.dtype)
    return x * jnp.where(norm > maxnorm, maxnorm / (norm + jnp.asarray(1e-7, norm.dtype)), jnp.ones((), norm.dtype))


@lowers("aten::logsumexp")
def logsumexp(x: Any, dim: Dims, keepdim: bool = False, *, out: OutSpec) -> Any:
    x = cast(x, opmath(out.dtype))
    axes = axes_of(dim, x.ndim)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return lax.log(lax.reduce_sum(lax.exp(x), axes)).reshape(out.shape)
    peak = lax.expand_dims(lax.reduce_max(x, axes), sorted(axes))
    peak = jnp.where(lax.abs(peak) == jnp.inf, jnp.zeros((), x.dtype), peak)
    return lax.log(lax.reduce_sum(lax.exp(x - peak), axes)).reshape(out.shape) + peak.reshape(out.shape)


@lowers("aten::hash_tensor")
def hash_tensor(x: Any, dim: Sequence[int] = (), *, keepdim: bool = False, mode: int = 0) -> Any:
    """The exclusive or of the bits of the elements as float64 or 64-bit integers."""
    if jnp.issubdtype(x.dtype, jnp.floating):
        bits = lax.bitcast_convert_type(x.astype("float64"), "uint64")
    else:
        bits = lax.convert_element_type(x, "int64").astype("uint64")
    axes = axes_of(dim, x.ndim)
    result = lax.reduce(bits, jnp.zeros((), "uint64"), lax.bitwise_xor, axes)
    return jnp.expand_dims(result, axes) if keepdim else result
