"""Reading by index: advanced indexing, `gather`, `index_select`, `take` and what packs elements into a given size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from torus.backend.lowering.apply import cast, check_bounds
from torus.backend.lowering.axes import at_least_1d, axis, take, take_along, wrap
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import lowers


class Plan(NamedTuple):
    """How a list of indices (None: the whole dimension) addresses a tensor, as PyTorch lays the result out."""

    index: Any
    """int64, the indices broadcast together and stacked along a new last dimension; counted from the front."""
    dims: tuple[int, ...]
    """The indexed dimensions, in the order of the last dimension of `index`."""
    window: tuple[int, ...]
    """Where the dimensions that are not indexed stand in the result."""
    shape: tuple[int, ...]
    """Sizes of the result."""


def plan(shape: Sequence[int], indices: Sequence[Any]) -> Plan:
    """Plan ``x[indices]`` for an `x` of `shape`; adjacent indices keep their place, separated ones move to the front.

    Raises NotImplementedError for masks (their sizes depend on data); the core makes them positions first.
    """
    dims = tuple(i for i, index in enumerate(indices) if index is not None)
    for i in dims:
        if str(indices[i].dtype) in ("bool", "uint8"):
            raise NotImplementedError("index with a boolean mask: the sizes of the result depend on its values")
        if shape[i] == 0 or 0 not in (size for d, size in enumerate(shape) if d not in dims):
            check_bounds(indices[i], shape[i], i)  # ATen does not look at the index where the result has no elements
    arrays = jnp.broadcast_arrays(*[wrap(indices[i], shape[i]) for i in dims])
    batch = arrays[0].shape
    first = dims[0] if dims == tuple(range(dims[0], dims[-1] + 1)) else 0
    rest = [size for i, size in enumerate(shape) if i not in dims]
    result = (*rest[:first], *batch, *rest[first:])
    window = (*range(first), *range(first + len(batch), len(result)))
    return Plan(jnp.stack(arrays, axis=-1), dims, window, result)


@lowers("aten::index.Tensor", "aten::_unsafe_index.Tensor", host_tensors=True)
def index(self: Any, indices: Sequence[Any]) -> Any:
    if all(i is None for i in indices):
        return self
    p = plan(self.shape, indices)
    if self.size == 0 or 0 in p.shape:
        return jnp.zeros(p.shape, self.dtype)
    numbers = lax.GatherDimensionNumbers(offset_dims=p.window, collapsed_slice_dims=p.dims, start_index_map=p.dims)
    sizes = [1 if i in p.dims else size for i, size in enumerate(self.shape)]
    return lax.gather(self, p.index, numbers, sizes, mode="clip")


@lowers("aten::_unsafe_masked_index", host_tensors=True)
def unsafe_masked_index(self: Any, mask: Any, indices: Sequence[Any], fill: Any) -> Any:
    return jnp.where(mask, index(self, clamped(self.shape, indices)), cast(fill, str(self.dtype)))


def clamped(shape: Sequence[int], indices: Sequence[Any]) -> list[Any]:
    """The indices forced into range, for ops that mask what the bad ones would have read."""
    return [i if i is None else jnp.clip(i, -size, max(size - 1, 0)) for i, size in zip(indices, shape)]


@lowers("aten::index_select")
def index_select(self: Any, dim: int, index: Any) -> Any:
    ax = axis(dim, self.ndim)
    source, flat = at_least_1d(self), at_least_1d(index)
    check_bounds(flat, source.shape[ax], ax, lower=0)
    result = take(source, ax, flat)
    return result.reshape(()) if self.ndim == 0 else result


@lowers("aten::gather")
def gather(self: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    ax = axis(dim, max(self.ndim, index.ndim))
    source, picks = at_least_1d(self), at_least_1d(index)
    check_bounds(picks, source.shape[ax], ax, lower=0)
    return take_along(source, ax, picks).reshape(index.shape)


@lowers("aten::take")
def take_flat(self: Any, index: Any) -> Any:
    check_bounds(index, self.size, 0)
    return take(self.reshape(-1), 0, wrap(index, self.size))


@lowers("aten::repeat_interleave.Tensor")
def repeat_interleave(repeats: Any, *, output_size: int | None = None) -> Any:
    if output_size is None:
        raise NotImplementedError(
            "repeat_interleave without output_size: the size of the result depends on the repeats"
        )
    ends = lax.cumsum(lax.convert_element_type(repeats, "int64"), axis=0)
    starts = jnp.zeros(output_size + 1, "int64").at[ends].add(1, mode="drop")
    return lax.cumsum(starts, axis=0)[:output_size]


@lowers("aten::nonzero_static")
def nonzero_static(self: Any, *, size: int, fill_value: int = -1) -> Any:
    flat = self.reshape(-1) != 0
    found = compact(lax.iota("int64", flat.size), flat, size, fill=-1)
    columns = [(found // max(math.prod(self.shape[i + 1 :]), 1)) % max(n, 1) for i, n in enumerate(self.shape)]
    if not columns:
        return jnp.zeros((size, 0), "int64")
    return jnp.where((found >= 0)[:, None], jnp.stack(columns, axis=1), fill_value)


@lowers("aten::masked_scatter_backward")
def masked_scatter_backward(grad_output: Any, mask: Any, sizes: Sequence[int]) -> Any:
    mask = jnp.broadcast_to(mask, grad_output.shape)
    return compact(grad_output.reshape(-1), mask.reshape(-1), math.prod(sizes)).reshape(tuple(sizes))


def compact(values: Any, mask: Any, size: int, fill: int = 0) -> Any:
    """The values under the mask, in order, in an array of `size`: cut off, or filled up at the end."""
    target = jnp.where(mask, lax.cumsum(mask.astype("int64"), axis=0) - 1, size) if mask.size else mask.astype("int64")
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    empty = jnp.full(size, fill, values.dtype)
    return lax.scatter(empty, target[:, None], values, numbers, mode="drop") if mask.size and size else empty
