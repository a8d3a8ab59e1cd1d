"""Reading and writing strided views of a storage inside a program.

A storage is one array in the order of memory. A view is sizes, strides and an offset that is known only at run time, so
the elements between the first and the last one of the view are cut out first (one dynamic slice); the rest is static.
When the strides nest, as after slicing, selecting, transposing and expanding, that rest is pad, reshape
and slice, which XLA fuses; otherwise a gather.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from torus.backend.lowering.dtypes import ITEMSIZE
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.repeats import repeat


@dataclass(frozen=True)
class View:
    """Sizes and strides, in elements, of a view over a storage; the offset comes at run time."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def numel(self) -> int:
        """Number of elements of the view."""
        return int(np.prod(self.sizes, dtype=np.int64))

    @property
    def span(self) -> int:
        """Number of storage elements from the view's first element to its last."""
        if self.numel == 0:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides))

    def memory_order(self) -> list[int] | None:
        """Dimensions from the outermost to the innermost when the view is dense and without overlap; None otherwise."""
        order = sorted(range(len(self.sizes)), key=lambda d: (-self.strides[d], -self.sizes[d]))
        expected = 1
        for dim in reversed(order):
            if self.sizes[dim] != 1 and self.strides[dim] != expected:
                return None
            expected *= self.sizes[dim]
        return order


def element_indices(view: View) -> np.ndarray:
    """For each element of the view, its place relative to the first one."""
    index = np.zeros(view.sizes, np.int64)
    for dim, (size, stride) in enumerate(zip(view.sizes, view.strides)):
        shape = [1] * len(view.sizes)
        shape[dim] = size
        index = index + (np.arange(size, dtype=np.int64) * stride).reshape(shape)
    return index


def flatten_as(array: Any, dtype: str) -> Any:
    """The bytes of `array` in memory order as a flat array of `dtype`; a rest that fills no element is cut off."""
    flat = array.reshape(-1)
    if str(flat.dtype) == dtype:
        return flat
    source_size, target_size = ITEMSIZE[str(flat.dtype)], ITEMSIZE[dtype]
    names = (str(flat.dtype), dtype)
    if source_size == target_size and not any(n == "bool" or n.startswith("complex") for n in names):
        return lax.bitcast_convert_type(flat, dtype)
    return _from_bytes(_to_bytes(flat), dtype)


def _to_bytes(flat: Any) -> Any:
    name = str(flat.dtype)
    if name == "bool":
        return flat.astype("uint8")
    if name.startswith("complex"):
        flat = jnp.stack([lax.real(flat), lax.imag(flat)], axis=-1)
    return lax.bitcast_convert_type(flat, "uint8").reshape(-1)


def _from_bytes(flat: Any, dtype: str) -> Any:
    size = ITEMSIZE[dtype]
    flat = flat[: flat.size // size * size]
    if dtype == "bool":
        return flat != 0
    if dtype.startswith("complex"):
        part = "float32" if dtype == "complex64" else "float64"
        parts = lax.bitcast_convert_type(flat.reshape(-1, 2, size // 2), part)
        return lax.complex(parts[:, 0], parts[:, 1])
    return lax.bitcast_convert_type(flat.reshape(-1, size) if size > 1 else flat, dtype)


def _nesting(view: View) -> tuple[list[int], list[int], list[int]] | None:
    """(dims, outer first, their sizes, the sizes of the boxes they step through); None where strides do not nest."""
    dims = [d for d in range(len(view.sizes)) if view.sizes[d] != 1]
    dims.sort(key=lambda d: (-view.strides[d], -view.sizes[d]))
    if any(view.strides[d] <= 0 for d in dims):
        return None
    inner = [*[view.strides[d] for d in dims[1:]], 1]
    boxes = []
    for dim, step in zip(dims, inner):
        if view.strides[dim] % step:
            return None
        boxes.append(view.strides[dim] // step)
    for outer, dim in pairwise(dims):
        if view.sizes[dim] * view.strides[dim] > view.strides[outer]:
            return None
    return dims, [view.sizes[d] for d in dims], boxes


def _boxed(segment: Any, view: View, dims: list[int], sizes: list[int], boxes: list[int]) -> Any:
    """The segment, padded to whole boxes: an axis for each dimension, one for what is under the innermost stride."""
    shape = [sizes[0], *boxes]
    total = int(np.prod(shape, dtype=np.int64))
    return jnp.pad(segment, (0, total - segment.size)).reshape(shape)


def read(flat: Any, view: View, offset: Any) -> Any:
    """The view of `flat` that starts at `offset` (None: 0), with the view's own sizes."""
    if view.numel == 0:
        return jnp.zeros(view.sizes, flat.dtype)
    # A dimension with stride 0 repeats one element.
    repeated = [d for d in range(len(view.sizes)) if view.strides[d] == 0 and view.sizes[d] != 1]
    if repeated:
        once = tuple(1 if d in repeated else s for d, s in enumerate(view.sizes))
        return repeat(read(flat, View(once, view.strides), offset), view.sizes)
    segment = _cut(flat, view.span, offset)
    order = view.memory_order()
    if order is not None:
        return _transpose_from(segment.reshape([view.sizes[d] for d in order]), order)
    nested = _nesting(view)
    if nested is None:
        return segment[element_indices(view)]
    dims, sizes, boxes = nested
    array = _boxed(segment, view, dims, sizes, boxes)
    array = array[(*(slice(0, size) for size in sizes), 0)]
    rest = [d for d in range(len(view.sizes)) if view.sizes[d] == 1]
    return _transpose_from(array.reshape([*sizes, *[1] * len(rest)]), dims + rest)


def write(flat: Any, view: View, offset: Any, values: Any) -> Any:
    """`flat` with `values` written to the view that starts at `offset` (None: 0)."""
    if view.numel == 0:
        return flat
    segment = _cut(flat, view.span, offset)
    order = view.memory_order()
    nested = _nesting(view)
    if order is not None:
        segment = jnp.transpose(values, order).reshape(-1)
    elif nested is None:
        segment = segment.at[element_indices(view).reshape(-1)].set(values.reshape(-1))
    else:
        dims, sizes, boxes = nested
        rest = [d for d in range(len(view.sizes)) if view.sizes[d] == 1]
        array = _boxed(segment, view, dims, sizes, boxes)
        new = jnp.transpose(values, dims + rest).reshape([*sizes, 1])
        array = lax.dynamic_update_slice(array, new, [0] * array.ndim)
        segment = array.reshape(-1)[: view.span]
    if view.span == flat.size:
        return segment
    return lax.dynamic_update_slice(flat, segment, [offset])


def _cut(flat: Any, span: int, offset: Any) -> Any:
    if span == flat.size:
        return flat
    return lax.dynamic_slice(flat, [offset], [span])


def _transpose_from(array: Any, order: list[int]) -> Any:
    """Undo a permutation: axis i of `array` is dimension order[i] of the result."""
    inverse = [0] * len(order)
    for axis, dim in enumerate(order):
        inverse[dim] = axis
    return jnp.transpose(array, inverse)
