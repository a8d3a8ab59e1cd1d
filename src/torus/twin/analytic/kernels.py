"""Which ops a TPU program does together, so that what lies between them never reaches memory.

The TPU compiler's programs show three habits. (1) What can be recomputed from arrays in memory by elementwise ops,
broadcasts, slices and layout changes is: it is fused into each of its consumers, however many they are. (2) A matmul,
convolution or reduction takes in the elementwise ops that follow it, up to the first value that is wanted more than
once; that value goes to memory. (3) A reduction of what a kernel has just made, and updates of the same arrays, are
further outputs of one kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod

from torus.twin.analytic.flops import ARITHMETIC, TRANSCENDENTAL, flops
from torus.twin.analytic.tiling import same_tiles, width
from torus.twin.module import Module, Op, Region

CONSTANT = frozenset(("constant", "iota", "sdy.constant"))
LIGHT = (
    ARITHMETIC
    | TRANSCENDENTAL
    | frozenset(
        """broadcast_in_dim bitcast_convert concatenate dynamic_slice optimization_barrier pad reshape reverse slice
        transpose sdy.reshard sdy.sharding_constraint chlo.broadcast_add chlo.constant tuple
        get_tuple_element""".split()
    )
)
LAYOUT = frozenset(("reshape", "slice", "transpose"))
MATRIX = frozenset(("convolution", "dot_general"))
MANY = 3
"""Arrays of its own size from which a value is not computed anew for each of its consumers."""
COPIED = 2**16
"""Bytes from which on a copy between tiles counts."""
UPDATE = 64
"""How many ops can follow a gradient in its own kernel."""
OPAQUE = frozenset("custom_call sort while case if rng_bit_generator cholesky triangular_solve fft".split())
"""They read arrays, not expressions."""
COLLECTIVES = frozenset("all_gather all_reduce reduce_scatter all_to_all collective_permute".split())


@dataclass(slots=True, eq=False)
class Kernel:
    """One pass over memory. `reads` and `writes` are indices of values."""

    op: Op
    reads: set[int]
    writes: list[int] = field(default_factory=list)
    flops: float = 0.0
    traffic: float | None = None
    """Bytes, where they are not those of the arrays: a gather reads a part of its table."""
    inside: int = 0
    """Bytes of memory that are needed while it runs: of a loop's body."""
    at: int = 0
    """Its place in the order of the program."""
    plain: set[int] = field(default_factory=set)
    """Those of `reads` that are its op's operands as they lie in memory, but for their layout."""


def rounds(op: Op) -> bool:
    """Whether an op rounds float32 to bfloat16: a matmul at the default precision."""
    return op.name in MATRIX and "precision HIGH" not in op.attributes


class Grouping:
    """Groups the ops of one region into kernels, in their order."""

    def __init__(self, module: Module, region: Region) -> None:
        self.values, self.region = module.values, region
        self.kernels: list[Kernel] = []
        self.leaves: dict[int, frozenset[int]] = {}
        """For each value the arrays in memory that it is computed from; itself if it is one."""
        self.pending: dict[int, Kernel] = {}
        """Values that a kernel has made and not yet written."""
        self.writer: dict[int, Kernel] = {}
        self.narrowest: dict[int, tuple[int, frozenset[int]]] = {}
        """For a pending value, the one on the way to it that takes the least memory, and what else the rest needs."""
        self.stored: dict[int, int] = {}
        """For a value that differs in layout alone from one in memory, that one."""
        self.users: dict[int, list[Op]] = {}
        self.copies: dict[int, int] = {}
        """Arguments in another layout."""
        self.extra = 0.0
        """Work of elementwise ops, which belongs to the kernels that they are fused into."""
        self.wanted = set(region.returns)
        for op in region.ops:
            for index in set(op.operands):
                self.users.setdefault(index, []).append(op)

    def run(self) -> list[Kernel]:
        for index in self.region.arguments:
            self.leaves[index] = frozenset((index,))
        for op in self.region.ops:
            if op.name in CONSTANT:
                self.leaves.update(dict.fromkeys(op.results, frozenset()))
            elif self._moves(op):
                self._heavy(op)
            elif op.name in LIGHT or (op.name == "dynamic_update_slice" and not self.leaves.get(op.operands[0])):
                self._light(op)
            else:
                self._heavy(op)
        return [k for k in self.kernels if k.writes or k.op.name in OPAQUE]

    def narrow(self) -> set[int]:
        """Arrays of float32 that only matmuls read, which round them to bfloat16: they are stored rounded."""
        made = {i for k in self.kernels for i in k.writes if self.values[i].dtype == "f32"} - self.wanted
        for kernel in self.kernels:
            made -= kernel.reads - (kernel.plain if rounds(kernel.op) else set())
        return made

    def _light(self, op: Op) -> None:
        makers = {id(k): k for i in op.operands if (k := self.pending.get(i))}
        if len(makers) > 1:  # one kernel cannot wait for two: the last goes on
            last = max(makers.values(), key=lambda k: k.at)
            for i in op.operands:
                if (maker := self.pending.get(i)) and maker is not last:
                    self._write(i, maker)
        maker = next((k for i in op.operands if (k := self.pending.get(i))), None)
        leaves = self._leaves(op.operands)
        work = flops(op, self.values)
        for index in op.results:
            self.leaves[index] = leaves
            if op.name in LAYOUT and op.operands[0] in self.stored:
                self.stored[index] = self.stored[op.operands[0]]
            if maker is None:
                self.extra += work
                if self._needs_array(index):
                    self._loop(op, index, leaves)
                continue
            maker.flops += work
            maker.reads |= leaves - set(maker.writes)
            maker.plain -= leaves
            self._grow(index, op, leaves)
            self._made(index, maker)

    def _heavy(self, op: Op) -> None:
        for i in op.operands:
            if i in self.pending:
                self._write(i, self.pending[i])
            elif self._reads_array(op, i) and self.leaves.get(i) != frozenset((i,)):
                self._loop(Op("copy", op.operands, (), "", [], op.place), i, self.leaves.get(i, frozenset()))
        if op.name == "convolution":
            moved = tuple(self._laid_out(i, op) for i in op.operands)
            op = Op(op.name, moved, op.results, op.attributes, op.regions, op.place)
        leaves = self._leaves(op.operands)
        kernel = self._sibling(op, leaves)
        if kernel is None:
            kernel = self._new(op, leaves)
        else:
            kernel.reads |= leaves - set(kernel.writes)
        kernel.flops += flops(op, self.values)
        if op.name in MATRIX:
            plain = {self.stored[i] for i in op.operands if i in self.stored}
            kernel.plain = plain - self._leaves(i for i in op.operands if i not in self.stored)
        for index in op.results:
            if op.name in OPAQUE or op.name in COLLECTIVES or len(kernel.writes):
                self._write(index, kernel)
            else:
                self._made(index, kernel)

    def _laid_out(self, index: int, op: Op) -> int:
        """A copy of an argument, whose layout is fixed, in that of a convolution's operands."""
        if index not in self.region.arguments:
            return index
        if index not in self.copies:
            self.values.append(self.values[index])
            self.copies[index] = len(self.values) - 1
            self._write(self.copies[index], self._new(Op("copy", (index,), (), "", [], op.place), frozenset((index,))))
        return self.copies[index]

    def _moves(self, op: Op) -> bool:
        """Whether a reshape takes elements to other tiles, so that it is a copy."""
        if op.name != "reshape":
            return False
        before, after = (self.values[i].shape for i in (*op.operands, *op.results))
        return prod(before) * 4 >= COPIED and not same_tiles(before, after)

    def _reads_array(self, op: Op, index: int) -> bool:
        """Whether an op wants an operand in memory, not an expression."""
        return (
            op.name in OPAQUE
            or op.name in COLLECTIVES
            or op.name == "reshape"
            or (op.name == "gather" and index == op.operands[0])
        )

    def _sibling(self, op: Op, leaves: frozenset[int]) -> Kernel | None:
        """The kernel that has just made what a reduction takes in."""
        if op.name != "reduce":
            return None
        large = [i for i in leaves if prod(self.values[i].shape) >= prod(self.values[op.operands[0]].shape)]
        if len(large) != 1 or large[0] not in self.writer:
            return None
        maker = self.writer[large[0]]
        if maker.writes[0] != large[0] or maker.op.name in OPAQUE or maker.op.name in COLLECTIVES:
            return None
        if any(i in maker.writes[1:] for i in leaves):
            return None  # it must wait for what the kernel reduces
        return maker if self._after_all(maker, leaves) else None

    def _grow(self, index: int, op: Op, leaves: frozenset[int]) -> None:
        """Note which value on the way to a pending one is the narrowest."""
        before = [self.narrowest[i] for i in op.operands if i in self.pending and i in self.narrowest]
        if len(before) == 1 and self._bytes(before[0][0]) < self._bytes(index):
            self.narrowest[index] = before[0][0], before[0][1] | leaves
        else:
            self.narrowest[index] = index, frozenset()

    def _bytes(self, index: int) -> float:
        value = self.values[index]
        return prod(value.shape) * width(value.dtype)

    def _made(self, index: int, kernel: Kernel) -> None:
        """`kernel` goes on with a value, or writes it where it is wanted more than once."""
        users = self.users.get(index, [])
        self.narrowest.setdefault(index, (index, frozenset()))
        goes_on = index not in self.wanted and len(users) == 1 and self._keeps_size(users[0], index)
        if goes_on or self._used_up(index):
            self.pending[index] = kernel
            self.leaves[index] = frozenset()
        else:
            self._write(index, kernel)

    def _keeps_size(self, user: Op, index: int) -> bool:
        return user.name in LIGHT and prod(self.values[user.results[0]].shape) == prod(self.values[index].shape)

    def _used_up(self, index: int) -> bool:
        """Whether all that is made of a value is a few results of its size, as a parameter's update of its gradient."""
        seen, queue = {index}, [index]
        while queue:
            current = queue.pop()
            users = self.users.get(current, [])
            if not users and current not in self.wanted:
                return False
            for user in users:
                if not self._keeps_size(user, index) or len(seen) > UPDATE:
                    return False
                new = [i for i in user.results if i not in seen]
                seen.update(new)
                queue += new
        return index not in self.wanted

    def _write(self, index: int, kernel: Kernel) -> None:
        self.pending.pop(index, None)
        narrow, rest = self.narrowest.get(index, (index, frozenset()))
        if narrow != index and index not in self.wanted:
            self._write(narrow, kernel)
            self.leaves[index] = rest | {narrow}
            return
        self.leaves[index] = frozenset((index,))
        self.writer[index] = kernel
        self.stored[index] = index
        if index not in kernel.writes:
            kernel.writes.append(index)

    def _needs_array(self, index: int) -> bool:
        """Whether a value computed from arrays is written: a result, or wanted twice and made from `MANY`."""
        if index in self.wanted or len(self.users.get(index, ())) < 2:
            return index in self.wanted
        size = prod(self.values[index].shape) // 2
        return size > 0 and sum(prod(self.values[i].shape) > size for i in self.leaves[index]) >= MANY

    def _loop(self, op: Op, index: int, leaves: frozenset[int]) -> None:
        """Write a value that is computed from arrays, in one kernel with updates of the same arrays."""
        shape = self.values[index].shape
        makers = [self.writer[i] for i in leaves if i in self.writer]
        for kernel in (*sorted(makers, key=lambda k: -k.at)[:1], *reversed(self.kernels[-8:])):
            made_here = any(i in kernel.writes for i in leaves) and kernel.op.name not in OPAQUE | COLLECTIVES
            related = made_here or (kernel.op.name in LIGHT and bool(kernel.reads & leaves))
            if related and self.values[kernel.writes[0]].shape == shape and self._after_all(kernel, leaves):
                kernel.reads |= leaves - set(kernel.writes)
                kernel.plain -= leaves
                self._write(index, kernel)
                return
        self._write(index, self._new(op, leaves))

    def _after_all(self, kernel: Kernel, leaves: Iterable[int]) -> bool:
        """Whether a kernel runs no earlier than all that makes the `leaves`."""
        return all(self.writer[i].at <= kernel.at for i in leaves if i in self.writer)

    def _new(self, op: Op, leaves: frozenset[int]) -> Kernel:
        kernel = Kernel(op, set(leaves), at=len(self.kernels))
        self.kernels.append(kernel)
        return kernel

    def _leaves(self, operands: Iterable[int]) -> frozenset[int]:
        sets = [self.leaves.get(i) or frozenset() for i in operands]
        return frozenset().union(*sets)
