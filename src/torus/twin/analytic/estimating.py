"""From a step and a topology to an estimate: each part of the model in its turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from torus.twin import constants
from torus.twin import module as modules
from torus.twin.analytic import liveness, loops, waste
from torus.twin.analytic.flops import dimensions
from torus.twin.analytic.kernels import COLLECTIVES, MATRIX, Grouping, Kernel
from torus.twin.analytic.partition import Partition
from torus.twin.analytic.tiling import padded
from torus.twin.chips import Chip
from torus.twin.estimate import Collective, Estimate, Memory, OpCost
from torus.twin.module import Module, Op, Region
from torus.twin.step import Step
from torus.twin.topology import Topology

DOMINATING = 24
"""How many ops an estimate lists."""
GAPS = 1.05
"""The compiler's heap over the arrays that live in it: they are of unlike sizes and leave gaps."""
ASSUMED = (
    "Fusion, layouts and the order of ops are a model of the TPU compiler's, not its own.",
    "Arrays that the compiler may keep in the memory beside a core count as HBM.",
)


def estimate(step: Step, topology: Topology) -> Estimate:
    """What a step needs of each device of `topology`, over the mesh of the step.

    Raises ValueError for a text that is no StableHLO module.
    """
    whole = constants.fold_branches(modules.read(step.text, step.mesh, step.places))
    for argument, index in zip(step.arguments, whole.main.arguments, strict=False):
        whole.values[index].spec = whole.values[index].spec or argument.spec
    partition = Partition(whole, step.mesh)
    program = partition.run()
    costs = _Program(program, topology.chip)
    kernels, extra = costs.region(program.main)
    memory = _memory(step, program, kernels, costs.size)
    exchanged = _collectives(partition, kernels, topology, costs.narrow)
    seconds = sum(costs.seconds(k) for k in kernels)
    return Estimate(
        certainty="analytic",
        memory=memory,
        flops=sum(k.flops for k in kernels) + extra,
        bytes=sum(costs.bytes(k) for k in kernels),
        roofline_seconds=max(seconds, sum(c.seconds for c in exchanged)),
        local_seconds=seconds,
        collectives=exchanged,
        ops=costs.dominating(kernels),
        padding=waste.padding(program, topology.chip),
        notes=(*ASSUMED, *costs.notes),
    )


@dataclass
class _Program:
    """Costs of a program on one device of a chip."""

    program: Module
    chip: Chip
    notes: dict[str, None] = field(default_factory=dict)
    narrow: set[int] = field(default_factory=set)
    """Arrays of float32 that are stored in bfloat16."""

    def __post_init__(self) -> None:
        self.integers = loops.integers(self.program.main)
        self.images = _images(self.program)
        self.held = {*self.program.main.arguments, *self.program.main.returns}

    def region(self, region: Region) -> tuple[list[Kernel], float]:
        """Kernels of a region in their order, and the work of elementwise ops, which are spread over them."""
        grouping = Grouping(self.program, region)
        kernels, extra = grouping.run(), grouping.extra
        self.narrow |= grouping.narrow()
        for kernel in kernels:
            if kernel.op.name == "custom_call":
                self.notes["The work of custom calls is not known; their arrays count as read and written."] = None
            if kernel.op.regions and kernel.op.name in ("while", "case", "if"):
                extra += self._nested(kernel)
        return liveness.ordered(kernels, self.size, {*region.arguments, *region.returns}), extra

    def _nested(self, kernel: Kernel) -> float:
        """Cost of a loop's or branch's regions, put into its kernel."""
        times, known = loops.trips(kernel.op, self.integers)
        if not known:
            self.notes["A loop whose number of rounds is not in the program counts as one round."] = None
        traffic, work = [], []
        for inner in kernel.op.regions:
            inside, extra = self.region(inner)
            work.append(sum(k.flops for k in inside) + extra)
            traffic.append(sum(self.bytes(k) for k in inside))
            free = {*inner.arguments}
            kernel.inside = max(kernel.inside, liveness.peak(inside, self.size, free, inner.returns)[0])
        combine = sum if kernel.op.name == "while" else max
        kernel.flops += times * combine(work)
        kernel.traffic = times * combine(traffic)
        return 0.0

    def size(self, index: int) -> int:
        value = self.program.values[index]
        dtype = "bf16" if index in self.narrow else value.dtype
        return padded(value.shape, dtype, () if index in self.held else self.images.get(value.shape, ()))

    def bytes(self, kernel: Kernel) -> float:
        """Bytes that a kernel reads from memory and writes to it."""
        if kernel.traffic is not None:
            return kernel.traffic
        written = sum(self.size(i) for i in kernel.writes)
        if kernel.op.name == "gather":
            return 2.0 * written + sum(self.size(i) for i in kernel.reads if i not in kernel.op.operands[:1])
        return float(written + sum(self.size(i) for i in kernel.reads))

    def seconds(self, kernel: Kernel) -> float:
        """The longer of arithmetic and memory traffic, at the chip's peaks."""
        return max(self._arithmetic(kernel), self.bytes(kernel) / self.chip.hbm_bandwidth)

    def _arithmetic(self, kernel: Kernel) -> float:
        if kernel.op.name not in MATRIX:
            return 0.0
        dtype = self.program.values[kernel.op.operands[0]].dtype
        peak = self.chip.flops.get({"i8": "int8", "ui8": "int8"}.get(dtype, "bfloat16"), self.chip.flops["bfloat16"])
        return kernel.flops * self._passes(kernel.op, dtype) / peak

    def _passes(self, op: Op, dtype: str) -> int:
        """bfloat16 products that one of `dtype` takes at the op's precision."""
        if dtype not in ("f32", "f64"):
            return 1
        return 6 if "precision HIGHEST" in op.attributes else 3 if "precision HIGH" in op.attributes else 1

    def dominating(self, kernels: list[Kernel]) -> tuple[OpCost, ...]:
        """The longest ops by kind, and by place where places are known."""
        rows: dict[tuple[Literal["kind", "place"], str], list[Kernel]] = defaultdict(list)
        for kernel in kernels:
            rows["kind", self._name(kernel)].append(kernel)
            if kernel.op.place:
                rows["place", kernel.op.place].append(kernel)
        costs = [
            OpCost(
                name,
                len(group),
                sum(k.flops for k in group),
                sum(map(self.bytes, group)),
                sum(map(self.seconds, group)),
                by,
            )
            for (by, name), group in rows.items()
        ]
        return tuple(sorted(costs, key=lambda cost: -cost.seconds)[:DOMINATING])

    def _name(self, kernel: Kernel) -> str:
        sizes = "x".join(map(str, self.program.values[kernel.writes[0]].shape)) if kernel.writes else ""
        return f"{kernel.op.name} {sizes}".strip()


def _images(program: Module) -> dict[tuple[int, ...], tuple[int, ...]]:
    """For the shape of each array of a convolution its batch and feature dimensions, which then come last."""
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    for op in program.main.ops:
        if op.name == "convolution" and (dims := dimensions(op)):
            for index, name in zip((*op.operands, *op.results), dims, strict=True):
                found[program.values[index].shape] = dims[name][0]
    return found


def _memory(step: Step, program: Module, kernels: list[Kernel], size: Callable[[int], int]) -> Memory:
    main = program.main
    arguments = sum(map(size, main.arguments))
    reused = _reused(step, program)
    outputs = sum(size(i) for i in dict.fromkeys(main.returns) if i not in reused)
    free = {*main.arguments, *main.returns}
    temporaries = int(GAPS * liveness.peak(kernels, size, free, ())[0])
    return Memory(arguments, outputs, temporaries, arguments + outputs + temporaries)


def _reused(step: Step, program: Module) -> set[int]:
    """Results that take over the memory of a donated argument of their shape."""
    left: dict[tuple[object, ...], int] = defaultdict(int)
    for argument, index in zip(step.arguments, program.main.arguments, strict=False):
        value = program.values[index]
        left[value.shape, value.dtype] += argument.donated
    reused = set()
    for index in program.main.returns:
        value = program.values[index]
        if left[value.shape, value.dtype] > 0 and index not in reused:
            left[value.shape, value.dtype] -= 1
            reused.add(index)
    return reused


def _collectives(
    partition: Partition, kernels: list[Kernel], topology: Topology, narrow: set[int]
) -> tuple[Collective, ...]:
    """Exchanges of each kind over each group of axes. What only matmuls read is rounded before it is sent."""
    found: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
    for kernel in kernels:
        for index in kernel.writes:
            if kernel.op.name in COLLECTIVES and (exchange := partition.exchanges.get(index)):
                sent = exchange.bytes // 2 if index in narrow else exchange.bytes
                found[exchange.kind.replace("_", "-"), exchange.axes].append(sent)
    bandwidth = topology.chip.send_bandwidth
    return tuple(
        Collective(kind, axes, len(sent), sum(sent), sum(sent) / bandwidth) for (kind, axes), sent in found.items()
    )
