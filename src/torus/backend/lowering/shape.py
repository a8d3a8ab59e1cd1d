"""Joining, repeating and reordering elements, and the copying forms of the view ops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from torus.backend.lowering import repeats
from torus.backend.lowering.apply import cast, check_bounds
from torus.backend.lowering.axes import at_least_1d, axis, cut, pad_axis, take, take_static, wrap
from torus.backend.lowering.dtypes import ITEMSIZE
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import OutSpec, lowers
from torus.backend.lowering.scatter import diagonal_positions

Ints = Sequence[int]


@lowers("aten::cat")
def cat(tensors: Sequence[Any], dim: int = 0, *, out: OutSpec) -> Any:
    # A 1-d tensor without elements joins anything, a habit from before 0-sized dimensions.
    parts = [cast(t, out.dtype) for t in tensors if t.shape != (0,)]
    if not parts:
        return jnp.zeros(out.shape, out.dtype)
    return lax.concatenate(parts, axis(dim, parts[0].ndim))


@lowers("aten::stack", "aten::_stack")
def stack(tensors: Sequence[Any], dim: int = 0, *, out: OutSpec) -> Any:
    ax = axis(dim, len(out.shape))
    return lax.concatenate([jnp.expand_dims(cast(t, out.dtype), ax) for t in tensors], ax)


@lowers("aten::_chunk_cat")
def chunk_cat(tensors: Sequence[Any], dim: int, num_chunks: int, *, out: OutSpec) -> Any:
    ax = axis(dim, min(t.ndim for t in tensors))
    parts = []
    for t in tensors:
        chunk = -(-t.shape[ax] // num_chunks)
        padded = pad_axis(cast(t, out.dtype), ax, 0, chunk * num_chunks - t.shape[ax])
        parts.append(padded.reshape(*t.shape[:ax], num_chunks, -1))
    return lax.concatenate(parts, ax + 1)


@lowers("aten::block_diag")
def block_diag(tensors: Sequence[Any], *, out: OutSpec) -> Any:
    total, row, column = jnp.zeros(out.shape, out.dtype), 0, 0
    for t in tensors:
        block = cast(t, out.dtype).reshape((1,) * (2 - t.ndim) + t.shape)
        total = lax.dynamic_update_slice(total, block, (row, column))
        row, column = row + block.shape[0], column + block.shape[1]
    return total


@lowers("aten::flip")
def flip(self: Any, dims: Ints) -> Any:
    return lax.rev(self, sorted({axis(d, self.ndim) for d in dims})) if self.ndim else self


@lowers("aten::roll")
def roll(self: Any, shifts: Ints, dims: Ints = ()) -> Any:
    if self.size == 0:
        return self
    if not dims:
        return roll(self.reshape(-1), shifts, (0,)).reshape(self.shape)
    for shift, dim in zip(shifts, dims):
        ax = axis(dim, self.ndim)
        size = self.shape[ax]
        split = -shift % size
        self = lax.concatenate([cut(self, ax, split, size), cut(self, ax, 0, split)], ax)
    return self


@lowers("aten::rot90")
def rot90(self: Any, k: int = 1, dims: Ints = (0, 1)) -> Any:
    a, b = (axis(d, self.ndim) for d in dims)
    if k % 4 == 2:
        return lax.rev(self, (a, b))
    turned = lax.rev(self, (b if k % 4 == 1 else a,)) if k % 2 else self
    return turned.swapaxes(a, b) if k % 2 else turned


@lowers("aten::repeat")
def repeat(self: Any, repeats: Ints) -> Any:
    sizes = (1,) * (len(repeats) - self.ndim) + self.shape
    split = [n for pair in zip([1] * len(sizes), sizes) for n in pair]
    wide = [n for pair in zip(repeats, sizes) for n in pair]
    return jnp.broadcast_to(self.reshape(split), wide).reshape([r * n for r, n in zip(repeats, sizes)])


@lowers("aten::channel_shuffle", "aten::native_channel_shuffle")
def channel_shuffle(self: Any, groups: int) -> Any:
    n, c, *rest = self.shape
    return self.reshape(n, groups, c // groups, *rest).swapaxes(1, 2).reshape(self.shape)


@lowers("aten::pixel_shuffle")
def pixel_shuffle(self: Any, upscale_factor: int) -> Any:
    *lead, c, h, w = self.shape
    f = upscale_factor
    split = self.reshape(math.prod(lead), c // f**2, f, f, h, w)
    return split.transpose(0, 1, 4, 2, 5, 3).reshape(*lead, c // f**2, h * f, w * f)


@lowers("aten::pixel_unshuffle")
def pixel_unshuffle(self: Any, downscale_factor: int) -> Any:
    *lead, c, h, w = self.shape
    f = downscale_factor
    split = self.reshape(math.prod(lead), c, h // f, f, w // f, f)
    return split.transpose(0, 1, 3, 5, 2, 4).reshape(*lead, c * f**2, h // f, w // f)


@lowers("aten::unfold_copy")
def unfold_copy(self: Any, dimension: int, size: int, step: int) -> Any:
    ax, x = axis(dimension, self.ndim), at_least_1d(self)
    starts = np.arange((x.shape[ax] - size) // step + 1) * step
    windows = take_static(x, ax, starts[:, None] + np.arange(size))
    windows = jnp.moveaxis(windows, ax + 1, -1)
    return windows.reshape(windows.shape[1:]) if self.ndim == 0 else windows


@lowers("aten::unfold_backward")
def unfold_backward(grad_in: Any, input_sizes: Ints, dim: int, size: int, step: int) -> Any:
    if not input_sizes:
        return grad_in.reshape(())
    ax = axis(dim, len(input_sizes))
    starts = np.arange(grad_in.shape[ax]) * step
    table = (starts[:, None] + np.arange(size)).reshape(-1)
    flat = jnp.moveaxis(grad_in, -1, ax + 1)
    flat = flat.reshape(*flat.shape[:ax], table.size, *flat.shape[ax + 2 :])
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(i for i in range(flat.ndim) if i != ax),
        inserted_window_dims=(ax,),
        scatter_dims_to_operand_dims=(ax,),
    )
    zeros = jnp.zeros(tuple(input_sizes), grad_in.dtype)
    return lax.scatter_add(zeros, table[:, None], flat, numbers, mode="drop") if flat.size else zeros


@lowers("aten::narrow_copy", runtime=("start",))
def narrow_copy(self: Any, dim: int, start: Any, length: int) -> Any:
    ax = axis(dim, self.ndim)
    return lax.dynamic_slice_in_dim(self, wrap(start, self.shape[ax]), length, ax)


@lowers("aten::select_copy.int", runtime=("index",))
def select_copy(self: Any, dim: int, index: Any) -> Any:
    ax = axis(dim, self.ndim)
    check_bounds(index, self.shape[ax], ax)
    return take(self, ax, wrap(index, self.shape[ax]))


@lowers("aten::slice_copy.Tensor")
def slice_copy(
    self: Any, dim: int = 0, start: Any = None, end: int | None = None, step: int = 1, *, out: OutSpec
) -> Any:
    ax = axis(dim, self.ndim)
    size, length = self.shape[ax], out.shape[ax]
    if isinstance(size, int) and isinstance(length, int):
        first, last, _ = slice(start, end, step).indices(size)
        return cut(self, ax, first, max(first, last), step)
    first = start or 0  # sizes that vary have no order that can always be told, so the promised length decides
    first = size + first if isinstance(first, int) and first < 0 else first
    return lax.slice_in_dim(self, first, first + (length - 1) * step + 1, step, ax)


@lowers("aten::diagonal_copy")
def diagonal_copy(self: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return take(self.reshape(-1), 0, diagonal_positions(self.shape, offset, dim1, dim2))


@lowers("aten::expand_copy")
def expand_copy(self: Any, size: Ints, *, implicit: bool = False, out: OutSpec) -> Any:
    leading = [1] * (len(out.shape) - self.ndim)
    return repeats.repeat(self.reshape(*leading, *self.shape), out.shape)


@lowers(
    "aten::view_copy",
    "aten::_reshape_copy",
    "aten::squeeze_copy",
    "aten::squeeze_copy.dim",
    "aten::squeeze_copy.dims",
    "aten::unsqueeze_copy",
    "aten::alias_copy",
    "aten::detach_copy",
    "aten::lift_fresh_copy",
)
def reshaped(self: Any, *arguments: Any, out: OutSpec) -> Any:
    """View copies that keep the elements in their order: the promised sizes say everything."""
    return self if self.shape == out.shape else self.reshape(out.shape)


@lowers("aten::permute_copy")
def permute_copy(self: Any, dims: Ints) -> Any:
    return repeats.transpose(self, [axis(d, self.ndim) for d in dims])


@lowers("aten::transpose_copy.int")
def transpose_copy(self: Any, dim0: int, dim1: int) -> Any:
    if not self.ndim:
        return self
    order, one, other = list(range(self.ndim)), axis(dim0, self.ndim), axis(dim1, self.ndim)
    order[one], order[other] = order[other], order[one]
    return repeats.transpose(self, order)


@lowers("aten::t_copy")
def t_copy(self: Any) -> Any:
    return self.T


@lowers("aten::unsafe_split_with_sizes", eager=False)  # eager mode gives views, as PyTorch's own kernel does
@lowers("aten::split_with_sizes_copy")
def split_with_sizes(self: Any, split_sizes: Ints, dim: int = 0) -> tuple[Any, ...]:
    ax = axis(dim, self.ndim)
    ends = np.cumsum(split_sizes)
    return tuple(cut(self, ax, int(end) - size, int(end)) for size, end in zip(split_sizes, ends))


@lowers("aten::unsafe_split.Tensor", eager=False)
@lowers("aten::split_copy.Tensor")
def split(self: Any, split_size: int, dim: int = 0) -> tuple[Any, ...]:
    ax = axis(dim, self.ndim)
    size = self.shape[ax]
    starts = range(0, size, split_size) if size else range(1)
    return tuple(cut(self, ax, start, min(start + split_size, size)) for start in starts)


@lowers("aten::unbind_copy.int")
def unbind_copy(self: Any, dim: int = 0) -> tuple[Any, ...]:
    ax = axis(dim, self.ndim)
    return tuple(lax.squeeze(cut(self, ax, i, i + 1), (ax,)) for i in range(self.shape[ax]))


@lowers("aten::view_as_real_copy")
def view_as_real_copy(self: Any) -> Any:
    return jnp.stack([lax.real(self), lax.imag(self)], axis=-1)


@lowers("aten::view_as_complex_copy")
def view_as_complex_copy(self: Any) -> Any:
    return lax.complex(self[..., 0], self[..., 1])


@lowers("aten::_conj_copy")
def conj_copy(self: Any) -> Any:
    return lax.conj(self)


@lowers("aten::_neg_view_copy")
def neg_view_copy(self: Any) -> Any:
    return -self


@lowers("aten::view_copy.dtype")
def view_dtype_copy(self: Any, dtype: Any, *, out: OutSpec) -> Any:
    if "bool" in (str(self.dtype), out.dtype):
        return self.astype(out.dtype)
    ratio = ITEMSIZE[out.dtype] // self.dtype.itemsize
    if ratio > 1:
        self = self.reshape(*self.shape[:-1], self.shape[-1] // ratio, ratio)
    return lax.bitcast_convert_type(self, out.dtype).reshape(out.shape)
