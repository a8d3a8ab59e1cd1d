"""Moving data along one axis: the helpers that pooling, padding, resampling, indexing and sorting share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from torus.backend.lowering.dtypes import OPMATH
from torus.backend.lowering.lazy import jnp, lax


def axis(dim: int, rank: int) -> int:
    """A dimension counted from the front; a 0-d tensor has the dimension 0, as in PyTorch."""
    return dim % max(rank, 1)


def ntuple(values: int | Sequence[int], n: int) -> tuple[int, ...]:
    """`values` as `n` ints; one value (or a list of one) stands for all of them."""
    values = [values] if isinstance(values, int) else list(values)
    return tuple(values * n if len(values) == 1 else values)


def opmath(x: Any) -> Any:
    """Half precisions as float32, everything else as it is."""
    return lax.convert_element_type(x, OPMATH.get(str(x.dtype), x.dtype))


def zero(x: Any) -> Any:
    """Zero of the dtype of `x`."""
    return np.zeros((), x.dtype)


def at_least_1d(x: Any) -> Any:
    """A 0-d array as one of a single element."""
    return x.reshape(1) if x.ndim == 0 else x


def cut(x: Any, ax: int, start: int, stop: int, step: int = 1) -> Any:
    """``x[start:stop:step]`` along one axis, bounds already normalised."""
    return lax.slice_in_dim(x, start, stop, step, ax)


def pad_axis(x: Any, ax: int, low: int, high: int, value: Any = None, interior: int = 0) -> Any:
    """Pad one axis; negative amounts crop."""
    config = [(0, 0, 0)] * x.ndim
    config[ax] = (low, high, interior)
    return lax.pad(x, zero(x) if value is None else value, config)


def take(x: Any, ax: int, index: Any) -> Any:
    """`x` with its axis `ax` replaced by the dimensions of `index`, which counts along it; bad indices are clamped."""
    shape = (*x.shape[:ax], *index.shape, *x.shape[ax + 1 :])
    if 0 in shape or x.shape[ax] == 0:
        return jnp.zeros(shape, x.dtype)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(*range(ax), *range(ax + index.ndim, len(shape))), collapsed_slice_dims=(ax,), start_index_map=(ax,)
    )
    sizes = (*x.shape[:ax], 1, *x.shape[ax + 1 :])
    return lax.gather(x, index[..., None], numbers, sizes, mode="clip")


def take_static(x: Any, ax: int, table: np.ndarray) -> Any:
    """`take` by a table known now: a slice, a repetition or a gather, whichever is cheapest."""
    table = np.asarray(table)
    n, size = x.shape[ax], table.shape[0] if table.ndim else 0
    if table.ndim != 1 or size < 2:
        return take(x, ax, table.astype(np.int32))
    step = int(table[1] - table[0])
    if step > 0 and np.array_equal(table, table[0] + step * np.arange(size)):
        return cut(x, ax, int(table[0]), int(table[-1]) + 1, step)
    if n and size % n == 0 and np.array_equal(table, np.repeat(np.arange(n), size // n)):
        wide = lax.broadcast_in_dim(
            x, (*x.shape[: ax + 1], size // n, *x.shape[ax + 1 :]), [i + (i > ax) for i in range(x.ndim)]
        )
        return wide.reshape(*x.shape[:ax], size, *x.shape[ax + 1 :])
    return take(x, ax, table.astype(np.int32))


def sum_taps(
    x: Any, ax: int, table: np.ndarray, weight: np.ndarray | None = None, valid: np.ndarray | None = None
) -> Any:
    """``out[i] = sum_k weight[i, k] * x[table[i, k]]`` along one axis, entries that are not `valid` left out."""
    shape = [1] * (x.ndim + 1)
    shape[ax : ax + 2] = table.shape

    def scaled(part: Any, columns: Any, sizes: list[int]) -> Any:
        if weight is not None:
            part = part * weight[:, columns].astype(x.dtype).reshape(sizes)
        if valid is not None and not valid[:, columns].all():
            part = jnp.where(valid[:, columns].reshape(sizes), part, zero(x))
        return part

    if table.shape[1] > 8:
        return scaled(take_static(x, ax, table), slice(None), shape).sum(axis=ax + 1, dtype=x.dtype)
    column = [1] * x.ndim
    column[ax] = table.shape[0]
    parts = [scaled(take_static(x, ax, table[:, k]), k, column) for k in range(table.shape[1])]
    return sum(parts[1:], parts[0])


def transpose_taps(
    table: np.ndarray, size: int, weight: np.ndarray | None = None, valid: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The taps of the transposed map: ``(table, weight, valid)`` for an axis of `size` fed by the rows of `table`."""
    rows = np.repeat(np.arange(table.shape[0]), table.shape[1])
    columns = table.reshape(-1)
    weights = np.ones(table.size) if weight is None else weight.reshape(-1)
    if valid is not None:
        keep = valid.reshape(-1)
        rows, columns, weights = rows[keep], columns[keep], weights[keep]
    order = np.argsort(columns, kind="stable")
    rows, columns, weights = rows[order], columns[order], weights[order]
    counts = np.bincount(columns, minlength=size)
    position = np.arange(columns.size) - (np.cumsum(counts) - counts)[columns]
    width = max(int(counts.max(initial=0)), 1)
    back = np.zeros((size, width), np.int64)
    back_weight = np.zeros((size, width))
    back_valid = np.zeros((size, width), bool)
    back[columns, position], back_weight[columns, position], back_valid[columns, position] = rows, weights, True
    return back, back_weight, back_valid


def wrap(index: Any, size: int) -> Any:
    """Indices that may count from the end, as int64 counted from the front."""
    index = lax.convert_element_type(index, "int64")
    return jnp.where(index < 0, index + size, index)


def positions(index: Any, ax: int, shape: Sequence[int]) -> Any:
    """Flat positions in an array of `shape` of the elements that `gather`/`scatter` name; bad indices give its size."""
    index = lax.convert_element_type(index, "int64")
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    flat = index * strides[ax]
    for i, stride in enumerate(strides):
        if i != ax and index.shape[i] > 1:
            flat = flat + lax.broadcasted_iota("int64", index.shape, i) * stride
    return jnp.where((index >= 0) & (index < shape[ax]), flat, math.prod(shape))


def take_along(x: Any, ax: int, index: Any) -> Any:
    """``x[..., index[...], ...]``: `gather` of PyTorch, for an index with as many dimensions as `x`."""
    return take(x.reshape(-1), 0, positions(index, ax, x.shape))
