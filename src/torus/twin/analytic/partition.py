"""The program of one device: sizes of the parts that it holds, and the collectives between.

Shardy says how each value is split (`torus.twin.module`). Where an op needs a part that its device does not hold, the
partitioner puts a collective before it; where a sum runs over a split dimension, one after it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from torus.twin.analytic.tiling import width
from torus.twin.module import Module, Op, Region, Value
from torus.twin.step import Spec

SAME = frozenset(("constant", "iota", "sdy.constant"))


@dataclass(slots=True)
class Exchange:
    """What one collective moves."""

    kind: str
    axes: tuple[str, ...]
    bytes: int
    """That each device sends."""


@dataclass
class Partition:
    """Makes the program of one device from one over global sizes."""

    module: Module
    mesh: dict[str, int]
    exchanges: dict[int, Exchange] = field(default_factory=dict)
    """By the value that a collective makes."""
    gathered: dict[tuple[int, Spec], int] = field(default_factory=dict)

    def run(self) -> Module:
        if not self.mesh or prod(self.mesh.values()) == 1:
            return self.module
        self.values = list(self.module.values)
        main = self._region(self.module.main)
        return Module([self._local(v) for v in self.values], main)

    def _local(self, value: Value) -> Value:
        return Value(self.local(value.shape, value.spec), value.dtype, value.spec)

    def local(self, shape: tuple[int, ...], spec: Spec) -> tuple[int, ...]:
        """Sizes of the part on one device; an uneven split is rounded up."""
        if not spec:
            return shape
        return tuple(-(-s // prod(self.mesh.get(a, 1) for a in axes)) for s, axes in zip(shape, spec, strict=True))

    def _region(self, region: Region) -> Region:
        ops: list[Op] = []
        for op in region.ops:
            regions = (
                [self._region(inner) for inner in op.regions] if op.name in ("while", "case", "if") else op.regions
            )
            op = Op(op.name, op.operands, op.results, op.attributes, regions, op.place)
            self._one(op, ops)
        return Region(region.arguments, ops, region.returns)

    # Each op

    def _one(self, op: Op, ops: list[Op]) -> None:
        if op.name in SAME or not op.results:
            ops.append(op)
        elif op.name == "dot_general":
            self._dot(op, ops)
        elif op.name in ("sdy.reshard", "sdy.sharding_constraint"):
            split = self._as(op.operands[0], self._spec(op.results[0]), ops)
            ops.append(Op("reshape", (split,), op.results, "", [], op.place))
        elif op.name in ("reduce", "gather", "scatter", "convolution"):
            self._summing(op, ops)
        else:
            self._elementwise(op, ops)

    def _spec(self, index: int) -> Spec:
        value = self.values[index]
        return value.spec or ((),) * len(value.shape)

    def _elementwise(self, op: Op, ops: list[Op]) -> None:
        """Operands of the result's own shape are split as it is."""
        result = self.values[op.results[0]]
        operands = [
            self._as(i, self._spec(op.results[0]), ops) if self.values[i].shape == result.shape else i
            for i in op.operands
        ]
        op.operands = tuple(operands)
        ops.append(op)

    def _summing(self, op: Op, ops: list[Op]) -> None:
        """Axes that split an operand and not the result are summed over."""
        ops.append(op)
        inside = {a for axes in self._spec(op.operands[0]) for a in axes}
        if op.name in ("scatter", "convolution"):
            inside = {a for i in op.operands[-1:] for axes in self._spec(i) for a in axes}
        if op.name == "gather":
            inside = {a for axes in self._spec(op.operands[0]) for a in axes}
        outside = {a for axes in self._spec(op.results[0]) for a in axes}
        missing = tuple(a for a in self.mesh if a in inside - outside)
        if missing:
            op.results = tuple(self._sum(i, missing, ops, op.place) for i in op.results)
            for made in ops[-len(op.results) :]:
                made.place = op.place

    def _dot(self, op: Op, ops: list[Op]) -> None:
        left, right = op.operands
        result = op.results[0]
        lb, rb = op.ints("lhs_batching_dimensions"), op.ints("rhs_batching_dimensions")
        lc, rc = op.ints("lhs_contracting_dimensions"), op.ints("rhs_contracting_dimensions")
        lfree = [d for d in range(len(self.values[left].shape)) if d not in lb and d not in lc]
        rfree = [d for d in range(len(self.values[right].shape)) if d not in rb and d not in rc]
        out = list(self._spec(result))
        lspec, rspec = list(self._spec(left)), list(self._spec(right))
        # Axes that split the depth on both sides give partial sums; so does one that splits one side and could split
        # the other at no cost.
        depth: list[tuple[str, ...]] = []
        used = {a for axes in out for a in axes}
        for dl, dr in zip(lc, rc, strict=True):
            both = tuple(a for a in lspec[dl] if a in rspec[dr] and not self._gathers(op, a, len(lb) + len(lfree)))
            free = {a for axes in lspec for a in axes} & {a for axes in rspec for a in axes}
            lone = tuple(a for a in (*lspec[dl], *rspec[dr]) if a not in free and a not in used and a not in both)
            depth.append(both + lone)
        summed = {a for axes in depth for a in axes}
        partial = [tuple(a for a in axes if a not in summed) for axes in out]
        want_left: list[tuple[str, ...]] = [()] * len(lspec)
        want_right: list[tuple[str, ...]] = [()] * len(rspec)
        for i, (dl, dr) in enumerate(zip(lb, rb, strict=True)):
            want_left[dl] = want_right[dr] = partial[i]
        for i, d in enumerate(lfree):
            want_left[d] = partial[len(lb) + i]
        for i, d in enumerate(rfree):
            want_right[d] = partial[len(lb) + len(lfree) + i]
        for i, (dl, dr) in enumerate(zip(lc, rc, strict=True)):
            want_left[dl] = want_right[dr] = depth[i]
        op.operands = (self._as(left, tuple(want_left), ops), self._as(right, tuple(want_right), ops))
        ops.append(op)
        if summed:
            op.results = (self._sum(result, tuple(a for a in self.mesh if a in summed), ops, op.place),)

    def _gathers(self, op: Op, axis: str, first_column: int) -> bool:
        """Whether to gather operands over an axis that splits their depth, and the result elsewhere, moves less than
        to scatter partial sums.
        """
        place = next((d for d, axes in enumerate(self._spec(op.results[0])) if axis in axes), None)
        if place is None:
            return False
        kept, gathered = op.operands if place < first_column else op.operands[::-1]
        moved = self._bytes(self.values[kept]) + self._bytes(self._without(gathered, axis))
        return moved < self._bytes(self._without(op.results[0], axis))

    def _without(self, index: int, axis: str) -> Value:
        """A value that is whole along an axis."""
        value = self.values[index]
        return Value(value.shape, value.dtype, tuple(tuple(a for a in d if a != axis) for d in self._spec(index)))

    # Collectives

    def _sum(self, result: int, axes: tuple[str, ...], ops: list[Op], place: str) -> int:
        """Add a sum over `axes` that makes `result`; gives the value of partial sums that it takes."""
        value = self.values[result]
        spec = self._spec(result)
        scattered = tuple(a for parts in spec for a in parts if a in axes)
        partial = Value(value.shape, value.dtype, tuple(tuple(a for a in p if a not in axes) for p in spec))
        index = self._add(partial)
        whole = self._bytes(partial)
        n = prod(self.mesh[a] for a in axes)
        kind = "reduce_scatter" if scattered else "all_reduce"
        sent = int(whole * (n - 1) / n) * (1 if scattered else 2)
        self.exchanges[result] = Exchange(kind, axes, sent)
        ops.append(Op(kind, (index,), (result,), "", [], place))
        return index

    def _as(self, index: int, spec: Spec, ops: list[Op]) -> int:
        """A value split as `spec` says."""
        have = self._spec(index)
        if have == spec:
            return index
        if (index, spec) in self.gathered:
            return self.gathered[index, spec]
        value = self.values[index]
        before = {a: d for d, axes in enumerate(have) for a in axes}
        after = {a: d for d, axes in enumerate(spec) for a in axes}
        lost = tuple(a for a in before if a not in after)
        moved = tuple(a for a in before if a in after and after[a] != before[a])
        wanted = self._add(Value(value.shape, value.dtype, spec))
        self.gathered[index, spec] = wanted
        if not lost and not moved:  # a part of what is here
            ops.append(Op("slice", (index,), (wanted,), ""))
            return wanted
        n = prod(self.mesh[a] for a in lost or moved)
        size = self._bytes(self.values[wanted]) if lost else self._bytes(value)
        kind = "all_gather" if lost else "all_to_all"
        self.exchanges[wanted] = Exchange(kind, lost or moved, int(size * (n - 1) / n))
        ops.append(Op(kind, (index,), (wanted,), ""))
        return wanted

    def _add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _bytes(self, value: Value) -> int:
        return int(prod(self.local(value.shape, value.spec)) * width(value.dtype))
