"""Cumulative sums, products, extremes and log-sum-exp along one dimension."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torus.backend.lowering.apply import cast, current
from torus.backend.lowering.lazy import jax, jnp, lax
from torus.backend.lowering.reductions import axis_of, carried, isnan, opmath
from torus.backend.lowering.registry import OutSpec, lowers

Combine = Callable[[Any, Any], Any]


def scan_along(combine: Combine, x: Any, axis: int) -> Any:
    """Inclusive scan of the arrays in the tree `x` with the associative function `combine`.

    XLA:CPU takes seconds to compile a tree of slices and runs it slowly, so there it is a loop. A long axis with little
    beside it is cut into blocks: a loop within all blocks at once, another over their totals.
    """
    leaves, form = jax.tree.flatten(x)
    size = leaves[0].shape[axis]
    if current().platform != "cpu":
        return lax.associative_scan(combine, x, axis=axis)
    if leaves[0].size == 0:
        return x
    blocks = math.isqrt(size) if size > 4096 and leaves[0].size < 64 * size else 1
    width = -(-size // blocks)
    within = _loop(combine, form.unflatten([_cut(leaf, axis, blocks, width) for leaf in leaves]))
    if blocks > 1:
        totals = _loop(combine, jax.tree.map(lambda a: a[-1], within))
        later = combine(jax.tree.map(lambda a: a[None, :-1], totals), jax.tree.map(lambda a: a[:, 1:], within))
        within = jax.tree.map(lambda a, b: jnp.concatenate([a[:, :1], b], 1), within, later)
    return jax.tree.map(lambda a: _join(a, axis, size), within)


def _cut(x: Any, axis: int, blocks: int, width: int) -> Any:
    """(..., blocks * width, ...) -> (width, blocks, ...), padded at the end, where it does no harm."""
    x = jnp.moveaxis(x, axis, 0)
    x = jnp.pad(x, [(0, blocks * width - x.shape[0])] + [(0, 0)] * (x.ndim - 1))
    return jnp.swapaxes(x.reshape(blocks, width, *x.shape[1:]), 0, 1)


def _join(x: Any, axis: int, size: int) -> Any:
    x = jnp.swapaxes(x, 0, 1)
    return jnp.moveaxis(x.reshape(-1, *x.shape[2:])[:size], 0, axis)


def _loop(combine: Combine, x: Any) -> Any:
    """Inclusive scan along the first axis, one step after the other."""

    def step(carry: tuple[Any, Any], new: Any) -> tuple[tuple[Any, Any], Any]:
        started, old = carry
        value = jax.tree.map(lambda both, alone: jnp.where(started, both, alone), combine(old, new), new)
        return (jnp.ones((), bool), value), value

    nothing = jax.tree.map(lambda a: jnp.zeros_like(a[0]), x)
    return lax.scan(step, (jnp.zeros((), bool), nothing), x)[1]


def _scan(combine: Combine, x: Any, dim: int, dtype: str) -> Any:
    x = cast(x, "int64" if dtype == "bool" else carried(opmath(dtype)))
    return x if x.ndim == 0 else scan_along(combine, x, axis_of(dim, x.ndim))


@lowers("aten::cumsum")
def cumsum(x: Any, dim: int, *, dtype: Any = None, out: OutSpec) -> Any:
    return _scan(lax.add, x, dim, out.dtype)


@lowers("aten::cumprod")
def cumprod(x: Any, dim: int, *, dtype: Any = None, out: OutSpec) -> Any:
    return _scan(lax.mul, x, dim, out.dtype)


def _log_add(a: Any, b: Any) -> Any:
    """log(exp(a) + exp(b)); equal infinities stay themselves."""
    low, high = jnp.minimum(a, b), jnp.maximum(a, b)
    return jnp.where((low == high) & jnp.isinf(low), high, high + lax.log1p(lax.exp(low - high)))


@lowers("aten::logcumsumexp", "aten::_logcumsumexp")
def logcumsumexp(x: Any, dim: int) -> Any:
    return cast(_scan(_log_add, x, dim, str(x.dtype)), str(x.dtype))


def _cumulative_extreme(x: Any, dim: int, wins: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """Running extreme and its index: the latest of equal ones, and from the first NaN on the latest NaN."""
    if x.ndim == 0:
        return x, jnp.zeros((), "int64")
    axis = axis_of(dim, x.ndim)

    def later(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
        take = isnan(b[0]) | (~isnan(a[0]) & wins(b[0], a[0]))
        return jnp.where(take, b[0], a[0]), jnp.where(take, b[1], a[1])

    return tuple(scan_along(later, (x, lax.broadcasted_iota("int32", x.shape, axis)), axis))


@lowers("aten::cummax")
def cummax(x: Any, dim: int) -> Any:
    return _cumulative_extreme(x, dim, lambda new, old: new >= old)


@lowers("aten::cummin")
def cummin(x: Any, dim: int) -> Any:
    return _cumulative_extreme(x, dim, lambda new, old: new <= old)


@lowers("aten::_cummax_helper")
def cummax_helper(x: Any, values: Any, indices: Any, dim: int) -> Any:
    return cummax(x, dim)


@lowers("aten::_cummin_helper")
def cummin_helper(x: Any, values: Any, indices: Any, dim: int) -> Any:
    return cummin(x, dim)
