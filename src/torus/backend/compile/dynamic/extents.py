"""Which part of a padded dimension is real.

A dimension of a dynamic size is padded to a fixed one. Its `Extent` says which places hold elements of the tensor: the
first ones, or, after dimensions were merged into one, the first ones of each stretch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torus.backend.compile.errors import CompileError
from torus.backend.lowering.lazy import jnp, lax


class Unpadded(CompileError):
    """An op that cannot work on padded tensors; the graph is compiled for each size instead."""


@dataclass(frozen=True, eq=False)
class Part:
    """`padded` places, of which the first `real` count (a number or a traced one)."""

    padded: int
    real: Any

    @property
    def whole(self) -> bool:
        return isinstance(self.real, int) and self.real == self.padded

    def same(self, other: Part) -> bool:
        """Whether both cut alike; traced sizes are alike when they are one value."""
        return self.padded == other.padded and (self.real is other.real or _equal(self.real, other.real))


def _equal(a: Any, b: Any) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a == b


@dataclass(frozen=True, eq=False)
class Extent:
    """The parts of one dimension, outermost first; their padded sizes multiply to its own.

    uniform: all places hold the same, so that any of them may be the ones that count.
    """

    parts: tuple[Part, ...]
    uniform: bool = False

    @property
    def padded(self) -> int:
        return math.prod(p.padded for p in self.parts)

    def mask(self) -> Any:
        """bool[padded]: True for the places that count."""
        result = jnp.ones((), bool)
        for part in self.parts:
            inside = lax.iota("int64", part.padded) < jnp.asarray(part.real, "int64")
            result = (result[..., None] & inside).reshape(-1)
        return result.reshape(-1)

    def count(self) -> Any:
        """How many places count, as int64."""
        total = jnp.asarray(1, "int64")
        for part in self.parts:
            total = total * jnp.asarray(part.real, "int64")
        return total

    def single(self, what: str) -> Any:
        """The number of real places, which are the first ones. Raises Unpadded where they are not."""
        real = [p for p in self.parts if p.padded != 1]
        outer, rest = real[:1], real[1:]
        if any(not p.whole for p in rest):
            raise Unpadded(f"{what} needs the elements of a merged dimension side by side")
        inner = math.prod(p.padded for p in rest)
        return jnp.asarray(outer[0].real, "int64") * inner if outer else jnp.asarray(1, "int64")

    def same(self, other: Extent) -> bool:
        """Whether the same places count in both."""
        mine, theirs = ([p for p in e.parts if p.padded != 1] for e in (self, other))
        return len(mine) == len(theirs) and all(a.same(b) for a, b in zip(mine, theirs))


Extents = tuple[Extent | None, ...]
"""One for each dimension of an array; None for a dimension that is real as a whole."""


def masked(array: Any, extents: Extents, dims: Sequence[int], value: Any) -> Any:
    """`array` with `value` at the places of `dims` that do not count."""
    for dim in dims:
        extent = extents[dim]
        if extent is None:
            continue
        shape = [1] * array.ndim
        shape[dim] = array.shape[dim]
        array = jnp.where(extent.mask().reshape(shape), array, jnp.asarray(value, array.dtype))
    return array


def agree(a: Extent | None, b: Extent | None) -> bool:
    """Whether two extents of one size fit together: the same places count, or one of them is the same everywhere."""
    if a is None or b is None or a.uniform or b.uniform:
        return True
    return a.same(b)


def compact(array: Any, dim: int, extent: Extent | None) -> tuple[Any, Extent | None]:
    """The places of `dim` that count moved to its front."""
    if extent is None or all(p.whole for p in [p for p in extent.parts if p.padded != 1][1:]):
        return array, extent
    index = lax.iota("int64", extent.padded)
    place, step = jnp.zeros_like(index), 1
    for part in reversed(extent.parts):
        real = jnp.maximum(jnp.asarray(part.real, "int64"), 1)
        place = place + index % real * step
        index = index // real
        step *= part.padded
    moved = jnp.take(array, jnp.minimum(place, extent.padded - 1), axis=dim)
    return moved, Extent((Part(extent.padded, extent.count()),))


def regroup(array: Any, extents: Extents, target: Sequence[int], target_extents: Extents) -> Any:
    """Any reshape, element by element: `target_extents` have their real elements in front."""
    for dim, extent in enumerate(extents):
        array, _ = compact(array, dim, extent)
    real = [jnp.asarray(s, "int64") if e is None else e.count() for s, e in zip(array.shape, extents)]
    wanted = [e.count() if e is not None else jnp.asarray(s, "int64") for s, e in zip(target, target_extents)]
    flat = jnp.zeros((), "int64")
    for dim, size in enumerate(target):
        flat = flat * wanted[dim]
        shape = [1] * len(target)
        shape[dim] = size
        flat = flat + lax.iota("int64", size).reshape(shape)
    place, step = jnp.zeros_like(flat), 1
    for dim in reversed(range(array.ndim)):
        size = jnp.maximum(real[dim], 1)
        place = place + flat % size * step
        flat = flat // size
        step *= array.shape[dim]
    return jnp.take(array.reshape(-1), jnp.clip(place, 0, max(0, array.size - 1)), axis=0)


def broadcast(operands: Sequence[tuple[Sequence[int], Extents]], shape: Sequence[int], what: str) -> Extents:
    """The extents of what is computed element by element. Raises Unpadded where two operands are cut differently."""
    result: list[Extent | None] = [None] * len(shape)
    for sizes, extents in operands:
        shift = len(shape) - len(sizes)
        for dim, extent in enumerate(extents):
            if extent is None or sizes[dim] != shape[dim + shift]:
                continue
            known = result[dim + shift]
            if known is None or (known.uniform and known.padded == extent.padded):
                result[dim + shift] = extent
            elif not (extent.uniform and known.padded == extent.padded) and not known.same(extent):
                raise Unpadded(f"{what} meets two dimensions whose sizes may differ")
    return tuple(result)


def reshaped(sizes: Sequence[int], extents: Extents, target: Sequence[int]) -> Extents:
    """The extents after a reshape. Raises Unpadded where it splits what is padded."""
    if not any(extents):
        return (None,) * len(target)
    parts = [p for size, e in zip(sizes, extents) for p in (e.parts if e is not None else (Part(size, size),))]
    parts = [p for p in parts if p.padded != 1]
    result: list[Extent | None] = []
    for size in target:
        taken: list[Part] = []
        left = size
        while left > 1:
            if not parts:
                raise Unpadded("a reshape splits a padded dimension")
            part = parts.pop(0)
            if left % part.padded == 0:
                taken.append(part)
                left //= part.padded
            elif part.padded % left == 0:
                head, tail = _split(part, left)
                taken.append(head)
                parts.insert(0, tail)
                left = 1
            else:
                raise Unpadded("a reshape splits a padded dimension")
        result.append(None if all(p.whole for p in taken) else Extent(tuple(taken)))
    if any(not p.whole for p in parts):
        raise Unpadded("a reshape drops a padded dimension")
    return tuple(result)


def _split(part: Part, outer: int) -> tuple[Part, Part]:
    if part.whole:
        return Part(outer, outer), Part(part.padded // outer, part.padded // outer)
    raise Unpadded("a reshape splits a padded dimension")
