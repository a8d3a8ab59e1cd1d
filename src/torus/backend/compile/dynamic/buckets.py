"""Padded sizes for dynamic ones: which to choose, and tensors to and from them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

_SMALLEST = 16
_WASTE = 4
"""A bucket up to so many times larger than need be is used before another program is made."""


class Buckets:
    """The padded sizes of one dynamic size: at most `most` of them up to the largest size seen or announced.

    step: they are multiples of it (0: powers of two). limit: the largest size, where it was announced.
    """

    def __init__(self, most: int, step: int = 0, limit: int | None = None) -> None:
        self.most, self.step, self.limit = most, step, limit
        self.sizes: list[int] = []

    def choose(self, size: int) -> int:
        """The padded size for `size`, which is at least as large."""
        fits = [s for s in self.sizes if s >= size]
        if fits and (min(fits) <= _WASTE * max(size, _SMALLEST) or len(self.sizes) >= self.most):
            return min(fits)
        new = self._rounded(size)
        if self.sizes and len(self.sizes) + 1 >= self.most:  # the last one: leave room above
            new = self._rounded(max(new, _WASTE * max(self.sizes)))
        if self.limit is not None and size <= self.limit:
            new = self.limit if len(self.sizes) + 1 >= self.most else min(new, self.limit)
        self.sizes.append(new)
        return new

    def _rounded(self, size: int) -> int:
        if self.step:
            return max(1, -(-size // self.step)) * self.step
        return max(_SMALLEST, 1 << (size - 1).bit_length())


def pad(tensor: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """`tensor` as the corner of one of `sizes`; without a copy when it already is one.

    The copy goes through the host, so that it needs no program for each size.
    """
    if tuple(tensor.shape) == tuple(sizes):
        return tensor
    whole = _whole(tensor, sizes)
    if whole is not None:
        return whole
    staged = torch.zeros(tuple(sizes), dtype=tensor.dtype)
    staged[tuple(slice(0, s) for s in tensor.shape)].copy_(tensor)
    return staged.to(tensor.device)


def _whole(tensor: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor | None:
    """The padded tensor that `tensor` was cut from, if it was."""
    order = sorted(range(tensor.dim()), key=lambda d: (-tensor.stride()[d], -sizes[d]))
    strides, step = [0] * tensor.dim(), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= sizes[dim]
    if any(tensor.stride(d) != strides[d] and tensor.shape[d] > 1 for d in order):
        return None
    if tensor.storage_offset() or tensor.untyped_storage().nbytes() != step * tensor.element_size():
        return None
    return tensor.as_strided(tuple(sizes), strides)


def cut(tensor: torch.Tensor, sizes: Sequence[int], dense: bool) -> torch.Tensor:
    """The corner of `tensor` with `sizes`, as a view; with `dense` a copy where that has gaps in memory.

    The copy goes through the host too.
    """
    if tuple(tensor.shape) == tuple(sizes):
        return tensor
    view = tensor.as_strided(tuple(sizes), tensor.stride())
    if not dense or torch.ops.aten.is_non_overlapping_and_dense(view):
        return view
    order = sorted(range(view.dim()), key=lambda d: -view.stride()[d])
    staged = torch.empty([view.shape[d] for d in order], dtype=view.dtype).permute(_inverse(order))
    return staged.copy_(view).to(tensor.device)


def _inverse(order: Sequence[int]) -> list[int]:
    return [order.index(dim) for dim in range(len(order))]
