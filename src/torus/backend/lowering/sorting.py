"""Order: sort, topk, order statistics, and searches in sorted sequences.

NaN is the largest and -0.0 equals 0.0, as in PyTorch. Elements of up to 32 bits are sorted as one int64 each, the
key above the position, which is stable by itself and several times faster on XLA:CPU than a sort of pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from torus.backend.lowering.apply import cast
from torus.backend.lowering.axes import at_least_1d, axis, cut, take_along
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import lowers

Pair = tuple[Any, Any]


@lowers("aten::sort")
def sort(self: Any, dim: int = -1, descending: bool = False) -> Pair:
    ax = axis(dim, self.ndim)
    x = at_least_1d(self)
    values, index = _ordered(x, ax, _order(x, ax, descending))
    return values.reshape(self.shape), index.reshape(self.shape)


@lowers("aten::sort.stable")
def sort_stable(self: Any, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Pair:
    return sort(self, dim, descending)


@lowers("aten::topk")
def topk(self: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    if self.ndim == 0:
        return self, jnp.zeros((), "int64")
    ax, x = axis(dim, self.ndim), self
    if str(x.dtype) in ("float32", "bfloat16", "float16") and 0 < k < x.shape[ax]:
        keys = _canonical(lax.convert_element_type(x, "float32"))
        # XLA's top_k is fast for float32 only and takes the first of equals; negated, a NaN ranks below -inf.
        index = lax.top_k(keys if largest else -keys, k, axis=ax)[1].astype("int64")
    else:
        index = cut(_order(x, ax, largest), ax, 0, k)
    return _ordered(x, ax, index)


@lowers("aten::kthvalue", runtime=("k",))
def kthvalue(self: Any, k: Any, dim: int = -1, keepdim: bool = False) -> Pair:
    return _kth(self, axis(dim, self.ndim), k - 1, keepdim)


@lowers("aten::median.dim")
def median_dim(self: Any, dim: int, keepdim: bool = False) -> Pair:
    ax = axis(dim, self.ndim)
    x = at_least_1d(self)
    return _kth(self, ax, _median_rank(x, ax, skip_nan=False), keepdim)


@lowers("aten::nanmedian.dim")
def nanmedian_dim(self: Any, dim: int, keepdim: bool = False) -> Pair:
    ax = axis(dim, self.ndim)
    x = at_least_1d(self)
    return _kth(self, ax, _median_rank(x, ax, skip_nan=True), keepdim)


@lowers("aten::median")
def median(self: Any) -> Any:
    return median_dim(self.reshape(-1), 0)[0] if self.size else jnp.full((), np.nan, self.dtype)


@lowers("aten::nanmedian")
def nanmedian(self: Any) -> Any:
    return nanmedian_dim(self.reshape(-1), 0)[0] if self.size else jnp.full((), np.nan, self.dtype)


@lowers("aten::mode")
def mode(self: Any, dim: int = -1, keepdim: bool = False) -> Pair:
    """The smallest of the most frequent values, and where it stands last."""
    ax = axis(dim, self.ndim)
    x = at_least_1d(self)
    values, index = _ordered(x, ax, _order(x, ax, False))
    n = x.shape[ax]
    place = lax.broadcasted_iota("int64", x.shape, ax)
    differs = cut(values, ax, 1, n) != cut(values, ax, 0, n - 1)
    edge = jnp.ones([1 if i == ax else size for i, size in enumerate(x.shape)], bool)
    begins, ends = jnp.concatenate([edge, differs], ax), jnp.concatenate([differs, edge], ax)
    start = lax.cummax(jnp.where(begins, place, 0), axis=ax)
    best = jnp.argmax(jnp.where(ends, place - start + 1, 0), axis=ax, keepdims=True)
    return _squeezed(self, ax, take_along(values, ax, best), take_along(index, ax, best), keepdim)


@lowers("aten::searchsorted.Tensor")
def searchsorted(
    sorted_sequence: Any,
    self: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    sequence = sorted_sequence if sorter is None else take_along(sorted_sequence, sorted_sequence.ndim - 1, sorter)
    return _search(sequence, self, right or side == "right")


@lowers("aten::searchsorted.Scalar")
def searchsorted_scalar(
    sorted_sequence: Any,
    self: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    return searchsorted(*_common(sorted_sequence, self), right=right, side=side, sorter=sorter)


@lowers("aten::bucketize.Tensor")
def bucketize(self: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    if boundaries.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    return _search(boundaries, self, right)


@lowers("aten::bucketize.Scalar")
def bucketize_scalar(self: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    return _search(*_common(boundaries, self), right)


@lowers("aten::_convert_indices_from_coo_to_csr")
def coo_to_csr(rows: Any, size: int, *, out_int32: bool = False) -> Any:
    """How many of the sorted `rows` come before each row."""
    return _search(rows, jnp.arange(size + 1, dtype=rows.dtype), False)


@lowers("aten::_convert_indices_from_csr_to_coo")
def csr_to_coo(crow_indices: Any, col_indices: Any, *, out_int32: bool = False, transpose: bool = False) -> Any:
    """Batch, row and column of each element, as the rows of a matrix."""
    *batch, count = col_indices.shape
    place = jnp.broadcast_to(jnp.arange(count, dtype=crow_indices.dtype), col_indices.shape)
    rows = _search(crow_indices, place, True) - 1
    cells = [col_indices, rows] if transpose else [rows, col_indices]
    numbers = [jnp.broadcast_to(i, col_indices.shape) for i in jnp.indices((*batch, 1))[:-1]]
    return jnp.stack([part.reshape(-1).astype("int64") for part in (*numbers, *cells)])


def _canonical(x: Any) -> Any:
    """Floats with one zero and one (positive) NaN."""
    x = jnp.where(x == 0, np.zeros((), x.dtype), x)
    return jnp.where(x != x, np.asarray(np.nan, x.dtype), x)


def _key(x: Any) -> Any:
    """An integer for each element that orders as PyTorch orders the elements; int32-sized unless `x` has 64 bits."""
    dtype = str(x.dtype)
    if dtype in ("int64", "float64"):
        bits = lax.bitcast_convert_type(_canonical(x), "int64") if dtype == "float64" else x
        return bits if dtype == "int64" else jnp.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    if dtype == "uint64":
        return lax.bitcast_convert_type(x ^ np.uint64(1 << 63), "int64")
    if jnp.issubdtype(x.dtype, jnp.floating):
        bits = lax.bitcast_convert_type(_canonical(lax.convert_element_type(x, "float32")), "int32")
        return lax.convert_element_type(jnp.where(bits < 0, bits ^ np.int32(2**31 - 1), bits), "int64")
    return lax.convert_element_type(x, "int64")


def _order(x: Any, ax: int, descending: bool) -> Any:
    """The stable order of `x` along an axis, as int64 positions."""
    place = lax.broadcasted_iota("int64", x.shape, ax)
    if x.size == 0:
        return place
    key = _key(x)
    key = ~key if descending else key
    if x.dtype.itemsize == 8:
        return lax.sort((key, place), dimension=ax, num_keys=1, is_stable=True)[1]
    return lax.sort((key << 32) | place, dimension=ax, is_stable=False) & np.int64(0xFFFFFFFF)


def _ordered(x: Any, ax: int, order: Any) -> Pair:
    return take_along(x, ax, order), order


def _kth(self: Any, ax: int, rank: Any, keepdim: bool) -> Pair:
    """The element of the given rank (a number or one for each row) along an axis, and its position."""
    x = at_least_1d(self)
    sizes = [1 if i == ax else size for i, size in enumerate(x.shape)]
    index = take_along(_order(x, ax, False), ax, jnp.broadcast_to(jnp.asarray(rank, "int64"), sizes))
    return _squeezed(self, ax, take_along(x, ax, index), index, keepdim)


def _median_rank(x: Any, ax: int, skip_nan: bool) -> Any:
    """The rank of the lower median; of the first NaN where there is one, unless those are left out."""
    n = x.shape[ax]
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return (n - 1) // 2
    numbers = jnp.sum(x == x, axis=ax, keepdims=True, dtype="int64")
    middle = (numbers - 1) // 2 if skip_nan else jnp.full_like(numbers, (n - 1) // 2)
    return jnp.where(numbers == 0, 0, middle) if skip_nan else jnp.where(numbers < n, numbers, middle)


def _squeezed(self: Any, ax: int, values: Any, index: Any, keepdim: bool) -> Pair:
    if self.ndim == 0:
        return values.reshape(()), index.reshape(())
    return (values, index) if keepdim else (lax.squeeze(values, (ax,)), lax.squeeze(index, (ax,)))


def _common(sequence: Any, scalar: Any) -> Pair:
    """A sequence and a number in the dtype in which PyTorch compares them: a number counts if its kind is higher."""
    if jnp.issubdtype(scalar.dtype, jnp.floating) and not jnp.issubdtype(sequence.dtype, jnp.floating):
        return lax.convert_element_type(sequence, scalar.dtype), scalar
    return sequence, cast(scalar, str(sequence.dtype))


def _search(sequence: Any, values: Any, right: bool) -> Any:
    """Where each value would be inserted, by PyTorch's binary search: its comparisons, so its answer for NaN."""
    n = sequence.shape[-1]
    if n == 0 or values.size == 0:
        return jnp.zeros(values.shape, "int64")
    rows = sequence.reshape(-1, n)
    wanted = values.reshape(rows.shape[0], -1)
    low, high = jnp.zeros(wanted.shape, "int64"), jnp.full(wanted.shape, n, "int64")
    for _ in range(n.bit_length()):
        middle = (low + high) // 2
        found = take_along(rows, 1, jnp.minimum(middle, n - 1))
        onward = ~(found > wanted) if right else ~(found >= wanted)
        active = low < high
        low, high = jnp.where(active & onward, middle + 1, low), jnp.where(active & ~onward, middle, high)
    return low.reshape(values.shape)
