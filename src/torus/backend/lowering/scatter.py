"""Writing by index: `index_put`, `scatter` and its reductions, the `index_*` family, and the inverses of view ops.

XLA:CPU applies updates one after the other, so that repeated indices add up in one order and the last of them wins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from torus.backend.lowering.apply import as_element, cast, check_bounds
from torus.backend.lowering.axes import at_least_1d, axis, opmath, pad_axis, positions, wrap, zero
from torus.backend.lowering.indexing import clamped, plan
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import lowers

Ints = Sequence[int]
Combine = Callable[..., Any]


@lowers("aten::index_put", "aten::_unsafe_index_put", host_tensors=True)
def index_put(self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    if all(i is None for i in indices):
        values = jnp.broadcast_to(values, self.shape)
        return self + values if accumulate else values
    p = plan(self.shape, indices)
    if self.size == 0 or 0 in p.shape:
        return self
    updates = jnp.broadcast_to(values, p.shape)
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=p.window, inserted_window_dims=p.dims, scatter_dims_to_operand_dims=p.dims
    )
    if not accumulate:
        return lax.scatter(self, p.index, updates, numbers, mode="drop")
    return lax.scatter_add(_summable(self), p.index, _summable(updates), numbers, mode="drop")


@lowers("aten::_index_put_impl", host_tensors=True)
def index_put_impl(
    self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, unsafe: bool = False
) -> Any:
    return index_put(self, indices, values, accumulate)


@lowers("aten::_unsafe_masked_index_put_accumulate", host_tensors=True)
def unsafe_masked_index_put_accumulate(self: Any, mask: Any, indices: Sequence[Any], values: Any) -> Any:
    return index_put(self, clamped(self.shape, indices), jnp.where(mask, values, zero(values)), True)


@lowers("aten::put")
def put(self: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    check_bounds(index, self.size, 0)
    flat = self.reshape(-1)
    combine = lax.scatter_add if accumulate else lax.scatter
    target = _dropping(wrap(index, self.size).reshape(-1), self.size)
    flat = _summable(flat) if accumulate else flat
    return _scatter_rows(combine, flat, 0, target, cast(source.reshape(-1), str(flat.dtype))).reshape(self.shape)


@lowers("aten::index_add")
def index_add(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    target = _summable(self)
    updates = _summable(source) * cast(jnp.asarray(alpha), str(target.dtype))
    return _index_rows(lax.scatter_add, target, dim, index, updates)


@lowers("aten::index_copy")
def index_copy(self: Any, dim: int, index: Any, source: Any) -> Any:
    return _index_rows(lax.scatter, self, dim, index, source)


def _check_rows(target: Any, ax: int, index: Any, lower: int | None = None) -> None:
    """Bounds of an index of rows; ATen does not look at it where rows have no elements."""
    if 0 not in (*target.shape[:ax], *target.shape[ax + 1 :]):
        check_bounds(index, target.shape[ax], ax, lower=lower)


@lowers("aten::index_fill.int_Scalar", "aten::index_fill.int_Tensor", fits=("value",))
def index_fill(self: Any, dim: int, index: Any, value: Any) -> Any:
    ax = axis(dim, self.ndim)
    target, flat = at_least_1d(self), index.reshape(-1)
    size = target.shape[ax]
    _check_rows(target, ax, flat)
    updates = jnp.broadcast_to(
        as_element(value, str(self.dtype)), (*target.shape[:ax], flat.size, *target.shape[ax + 1 :])
    )
    return _scatter_rows(lax.scatter, target, ax, _dropping(wrap(flat, size), size), updates).reshape(self.shape)


@lowers("aten::index_reduce")
def index_reduce(self: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    def put(combine: Combine, target: Any, updates: Any) -> Any:
        return _index_rows(combine, target, dim, index, updates)

    return _reduce_into(put, self, source, reduce, include_self)


@lowers("aten::scatter.src")
def scatter(self: Any, dim: int, index: Any, src: Any) -> Any:
    return _scatter_elements(lax.scatter, self, dim, index, src)


@lowers("aten::scatter.value", fits=("value",))
def scatter_value(self: Any, dim: int, index: Any, value: Any) -> Any:
    return scatter(self, dim, index, jnp.broadcast_to(as_element(value, str(self.dtype)), index.shape))


@lowers("aten::scatter_add")
def scatter_add(self: Any, dim: int, index: Any, src: Any) -> Any:
    return _scatter_elements(lax.scatter_add, _summable(self), dim, index, _summable(src))


@lowers("aten::scatter.reduce")
def scatter_with(self: Any, dim: int, index: Any, src: Any, *, reduce: str) -> Any:
    return scatter_reduce(self, dim, index, src, {"add": "sum", "multiply": "prod"}[reduce])


@lowers("aten::scatter.value_reduce", fits=("value",))
def scatter_value_with(self: Any, dim: int, index: Any, value: Any, *, reduce: str) -> Any:
    return scatter_with(self, dim, index, jnp.broadcast_to(cast(value, str(self.dtype)), index.shape), reduce=reduce)


@lowers("aten::scatter_reduce.two")
def scatter_reduce(self: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    def put(combine: Combine, target: Any, updates: Any) -> Any:
        return _scatter_elements(combine, target, dim, index, updates)

    return _reduce_into(put, self, src, reduce, include_self)


@lowers("aten::masked_scatter")
def masked_scatter(self: Any, mask: Any, source: Any) -> Any:
    if str(mask.dtype) != "bool":
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.dtype}")
    self, mask = jnp.broadcast_arrays(self, mask)
    if self.size == 0:
        return self
    order = lax.cumsum(mask.reshape(-1).astype("int64"), axis=0) - 1
    check_bounds(order[-1:], source.size, 0, "masked_scatter: the mask asks for source element", lower=-1)
    if source.size == 0:
        return self
    picked = source.reshape(-1)[jnp.clip(order, 0, source.size - 1)].reshape(self.shape)
    return jnp.where(mask, picked, self)


@lowers("aten::select_scatter", runtime=("index",))
def select_scatter(self: Any, src: Any, dim: int, index: Any) -> Any:
    ax = axis(dim, self.ndim)
    check_bounds(index, self.shape[ax], ax)
    update = jnp.expand_dims(cast(src, str(self.dtype)), ax)
    return lax.dynamic_update_slice_in_dim(self, update, wrap(index, self.shape[ax]), ax)


@lowers("aten::select_backward", runtime=("index",))
def select_backward(grad_output: Any, input_sizes: Ints, dim: int, index: Any) -> Any:
    return select_scatter(jnp.zeros(tuple(input_sizes), grad_output.dtype), grad_output, dim, index)


@lowers("aten::slice_backward", runtime=("start", "end"))
def slice_backward(grad_output: Any, input_sizes: Ints, dim: int, start: Any, end: Any, step: int) -> Any:
    zeros = jnp.zeros(tuple(input_sizes), grad_output.dtype)
    if grad_output.size == 0:
        return zeros
    ax = axis(dim, len(input_sizes))
    size = input_sizes[ax]
    spread = pad_axis(grad_output, ax, 0, 0, interior=step - 1)
    return lax.dynamic_update_slice_in_dim(zeros, spread, jnp.clip(wrap(start, size), 0, size), ax)


@lowers("aten::slice_scatter")
def slice_scatter(
    self: Any, src: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    ax = axis(dim, self.ndim)
    size = self.shape[ax]
    covered = range(size)[slice(start, end, step)]
    if len(covered) == 0 or self.size == 0:
        return self
    spread = pad_axis(cast(src, str(self.dtype)), ax, covered[0], size - covered[-1] - 1, interior=step - 1)
    mask = np.isin(np.arange(size), covered).reshape([-1 if i == ax else 1 for i in range(self.ndim)])
    return jnp.where(mask, spread, self)


@lowers("aten::diagonal_scatter")
def diagonal_scatter(self: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    if src.size == 0:
        return self
    target = diagonal_positions(self.shape, offset, dim1, dim2).reshape(-1)
    update = cast(src, str(self.dtype)).reshape(-1)
    return _scatter_rows(lax.scatter, self.reshape(-1), 0, target, update).reshape(self.shape)


@lowers("aten::diagonal_backward")
def diagonal_backward(grad_output: Any, input_sizes: Ints, offset: int, dim1: int, dim2: int) -> Any:
    return diagonal_scatter(jnp.zeros(tuple(input_sizes), grad_output.dtype), grad_output, offset, dim1, dim2)


def diagonal_positions(shape: Ints, offset: int, dim1: int, dim2: int) -> Any:
    """Flat positions in an array of `shape` of its diagonal, which becomes the last dimension."""
    first, second = axis(dim1, len(shape)), axis(dim2, len(shape))
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    row, column = max(-offset, 0), max(offset, 0)
    length = max(min(shape[first] - row, shape[second] - column), 0)
    rest = [i for i in range(len(shape)) if i not in (first, second)]
    sizes = (*[shape[i] for i in rest], length)
    steps = [*[strides[i] for i in rest], strides[first] + strides[second]]
    flat = jnp.full(sizes, row * strides[first] + column * strides[second], "int64")
    return sum((lax.broadcasted_iota("int64", sizes, i) * step for i, step in enumerate(steps)), flat)


def _summable(x: Any) -> Any:
    """The dtype in which repeated elements add up: float32 for half precisions, int32 for bool (cast back to "any")."""
    return lax.convert_element_type(x, "int32") if str(x.dtype) == "bool" else opmath(x)


def _dropping(index: Any, size: int) -> Any:
    """Indices outside ``[0, size)`` moved to `size`, where a scatter drops them."""
    return jnp.where((index >= 0) & (index < size), index, size)


def _scatter_rows(combine: Combine, x: Any, ax: int, index: Any, updates: Any) -> Any:
    """Write slice ``i`` of `updates` along `ax` at ``index[i]``."""
    if x.size == 0 or updates.size == 0:
        return x
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(i for i in range(x.ndim) if i != ax),
        inserted_window_dims=(ax,),
        scatter_dims_to_operand_dims=(ax,),
    )
    return combine(x, index[:, None], updates, numbers, mode="drop")


def _index_rows(combine: Combine, x: Any, dim: int, index: Any, source: Any) -> Any:
    """The `index_*_` family: a 1-d index that does not count from the end."""
    ax = axis(dim, x.ndim)
    target, flat = at_least_1d(x), index.reshape(-1)
    _check_rows(target, ax, flat, lower=0)
    updates = source.reshape(*target.shape[:ax], flat.size, *target.shape[ax + 1 :])
    return _scatter_rows(combine, target, ax, _dropping(flat, target.shape[ax]), updates).reshape(x.shape)


def _scatter_elements(combine: Combine, x: Any, dim: int, index: Any, src: Any) -> Any:
    """The `scatter` family: an index of the rank of `x`, an element of `src` for each of its elements."""
    ax = axis(dim, max(x.ndim, index.ndim))
    target, picks, updates = at_least_1d(x), at_least_1d(index), at_least_1d(src)
    if picks.size == 0:
        return x
    check_bounds(picks, target.shape[ax], ax, lower=0)
    updates = lax.slice(updates, [0] * picks.ndim, picks.shape)
    flat = positions(picks, ax, target.shape).reshape(-1)
    return _scatter_rows(combine, target.reshape(-1), 0, flat, updates.reshape(-1)).reshape(x.shape)


_COMBINE = {
    "sum": "scatter_add",
    "mean": "scatter_add",
    "prod": "scatter_mul",
    "amax": "scatter_max",
    "amin": "scatter_min",
}


def _reduce_into(put: Callable[[Combine, Any, Any], Any], self: Any, src: Any, reduce: str, include_self: bool) -> Any:
    """Reduce `src` into `self` where `put` writes, as `scatter_reduce` and `index_reduce` define it."""
    target, updates = _summable(self), _summable(src)
    if not include_self:
        target = put(lax.scatter, target, jnp.full(updates.shape, _identity(reduce, target.dtype), target.dtype))
    total = put(getattr(lax, _COMBINE[reduce]), target, updates)
    if reduce != "mean":
        return total
    counts = jnp.full(target.shape, 1 if include_self else 0, target.dtype)
    counts = jnp.maximum(put(lax.scatter_add, counts, jnp.ones(updates.shape, target.dtype)), np.ones((), target.dtype))
    return total / counts if jnp.issubdtype(total.dtype, jnp.inexact) else jnp.floor_divide(total, counts)


def _identity(reduce: str, dtype: Any) -> Any:
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    lowest, highest = (-np.inf, np.inf) if jnp.issubdtype(dtype, jnp.inexact) else _limits(dtype)
    return lowest if reduce == "amax" else highest


def _limits(dtype: Any) -> tuple[int, int]:
    info = jnp.iinfo(dtype)
    return int(info.min), int(info.max)
