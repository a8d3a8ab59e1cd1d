"""A step cut into blocks where its modules meet: a layer's forward pass, its backward pass, its parameters' update.

Each block is a step of its own, over the values that enter it, split as Shardy splits them in the whole step. Layers of
equal content give equal text, whatever their names are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from torus.twin.analytic.kernels import LAYOUT, LIGHT, MATRIX, Grouping
from torus.twin.analytic.tiling import padded
from torus.twin.module import Module, Op, Region, read
from torus.twin.step import Argument, Spec, Step

_SHORT = 16
"""Ops of no layer, up to this many in a row, that do not end a layer's block."""


@dataclass
class Block:
    """A stretch of ops. `enters` and `leaves` are values of the whole step, in the order of the step's own."""

    place: str
    step: Step
    enters: tuple[int, ...]
    leaves: tuple[int, ...]


@dataclass
class _Segment:
    place: str
    updates: bool
    ops: list[int] = field(default_factory=list)


class Cut:
    """A step and its `blocks`, in the order in which they run.

    quick: as the compiler does with little effort, operands of products are kept that could be made again.
    """

    def __init__(self, step: Step, quick: bool = True) -> None:
        self.step = step
        self.module: Module = read(step.text, step.mesh, step.places)
        main = self.module.main
        self.ops, self.arguments, self.returns = main.ops, main.arguments, main.returns
        self.maker = {v: i for i, op in enumerate(self.ops) for v in op.results}
        self.free = self._free()
        grouping = Grouping(self.module, main)
        self.stored = {v for kernel in grouping.run() for v in kernel.writes}
        self.narrow = grouping.narrow()
        self.segments = self._segments()
        self.home = {i: s for s, segment in enumerate(self.segments) for i in segment.ops}
        self.segments = self._early_updates()
        self.home = {i: s for s, segment in enumerate(self.segments) for i in segment.ops}
        self.stored |= self._kept_operands() if quick else set()
        self.reuses = self._reuses()
        self.blocks = self._blocks()

    # What a value is

    def bytes(self, value: int) -> int:
        """Of a value on one device, in its tiles."""
        v = self.module.values[value]
        shape = Argument("", "input", v.shape, v.dtype, v.spec).local_shape(self.step.mesh)
        return padded(shape, "bf16" if value in self.narrow else v.dtype)

    def _free(self) -> set[int]:
        """Values that depend on no argument; each block that uses them makes them anew."""
        found: set[int] = set()
        for op in self.ops:
            if op.results and all(v in found for v in (*op.operands, *_captured(op))):
                found.update(op.results)
        return found

    def _is_sunk(self, value: int) -> bool:
        """Whether XLA makes a value anew beside each use, so that it never is in memory."""
        return value not in self.stored and self.ops[self.maker[value]].name in LIGHT

    def _kept_operands(self) -> set[int]:
        """Operands of products in more than one block: with little effort the compiler lets these read arrays alone."""
        homes: dict[int, set[int]] = {}
        for i, op in enumerate(self.ops):
            if op.name in MATRIX and i in self.home:
                for value in op.operands:
                    while value in self.maker and self.ops[self.maker[value]].name in LAYOUT:
                        value = self.ops[self.maker[value]].operands[0]
                    homes.setdefault(value, set()).add(self.home[i])
        return {v for v, found in homes.items() if len(found) > 1 and v not in self.free}

    def _reuses(self) -> dict[int, int]:
        """The argument whose memory a result of the step takes."""
        numbers = {a.name: i for i, a in enumerate(self.step.arguments) if a.donated}
        named = zip(self.returns, self.step.results, strict=True)
        return {v: self.arguments[numbers[r.name]] for v, r in named if r.kind != "input" and r.name in numbers}

    # Cutting

    def _segments(self) -> list[_Segment]:
        """Ops in a row that belong to one layer of a list of layers, or to none."""
        parameters = {a.name for a in self.step.arguments if a.kind == "parameter"}
        found: list[_Segment] = []
        for i, op in enumerate(self.ops):
            if not op.results or op.results[0] in self.free:
                continue
            place, updates = _layer(op.place), op.place in parameters
            if not found or (found[-1].place, found[-1].updates) != (place, updates):
                found.append(_Segment(place, updates))
            found[-1].ops.append(i)
        return self._joined(found)

    def _joined(self, segments: list[_Segment]) -> list[_Segment]:
        """Without the few ops of no layer that lie between two stretches of one."""
        found: list[_Segment] = []
        for segment in segments:
            if len(found) > 1 and not found[-1].place and len(found[-1].ops) <= _SHORT and _alike(found[-2], segment):
                found[-2].ops += found.pop().ops
            if found and _alike(found[-1], segment):
                found[-1].ops += segment.ops
            else:
                found.append(segment)
        return found

    def _early_updates(self) -> list[_Segment]:
        """Updates run as soon as their gradients are there, which are then gone: XLA's scheduler does so."""
        turns = []
        for number, segment in enumerate(self.segments):
            turn = float(number)
            if segment.updates:
                needed = {self.home.get(self.maker.get(v, -1), -1) for i in segment.ops for v in self.ops[i].operands}
                turn = max(needed - {number}, default=-1) + 0.5
            turns.append((turn, number))
        return [self.segments[number] for _, number in sorted(turns)]

    def _blocks(self) -> list[Block]:
        found: list[Block] = []
        needed = {v: len(self.segments) for v in self.returns}
        """The last segment that uses a value."""
        for number in reversed(range(len(self.segments))):
            own = [v for i in self.segments[number].ops for v in self.ops[i].results if v in needed]
            ops, enters = self._reach(number, own)
            if not ops:
                continue
            gone = {v for v in enters if needed.setdefault(v, number) == number}
            found.append(Block(self.segments[number].place, self._step(ops, enters, own, gone), enters, tuple(own)))
        return found[::-1]

    def _reach(self, number: int, own: Iterable[int]) -> tuple[list[Op], tuple[int, ...]]:
        """The ops that make `own` in a segment, those of elsewhere among them that are done again, and what enters."""
        ops: set[int] = set()
        enters: dict[int, None] = {}
        left = list(own)
        while left:
            value = left.pop()
            maker = self.maker.get(value)
            if maker in ops or value in enters:
                continue
            here = maker is not None and (self.home.get(maker) == number or value in self.free or self._is_sunk(value))
            if maker is None or not here:
                enters[value] = None
                continue
            ops.add(maker)
            left += [*self.ops[maker].operands, *_captured(self.ops[maker])]
        in_order = [self.ops[i] for i in sorted(ops)]
        uses = dict.fromkeys(v for op in in_order for v in (*op.operands, *_captured(op)) if v in enters)
        return in_order, tuple(uses)

    def _step(self, ops: list[Op], enters: tuple[int, ...], leaves: list[int], gone: set[int]) -> Step:
        """A block as a step. An argument that it uses last is free for the value that takes over its memory."""
        values = self.module.values
        aliases = {self.reuses[v]: i for i, v in enumerate(leaves) if self.reuses.get(v) in gone}
        text = _Printer(self.module, self.step.mesh).module(ops, enters, leaves, aliases)
        known = dict(zip(self.arguments, self.step.arguments, strict=True))

        def argument(name: str, v: int, donated: bool = False) -> Argument:
            value = values[v]
            kind = known[v].kind if v in known else "input"
            return Argument(name, kind, value.shape, value.dtype, value.spec or ((),) * len(value.shape), donated)

        inputs = tuple(argument(f"in{i}", v, v in aliases) for i, v in enumerate(enters))
        names = {i: f"in{enters.index(a)}" for a, i in aliases.items()}
        outputs = tuple(argument(names.get(i, f"out{i}"), v) for i, v in enumerate(leaves))
        return Step("block", text, inputs, outputs, self.step.mesh, tuple(op.place for op in ops))

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each distinct text occurs."""
        return Counter(block.step.text for block in self.blocks)


def _alike(a: _Segment, b: _Segment) -> bool:
    return (a.place, a.updates) == (b.place, b.updates)


_PLAIN = {"sdy.constant": "stablehlo.constant", "sdy.reshard": "sdy.sharding_constraint"}
"""What Shardy makes of ops, and what a program has that it has not seen yet."""


def _layer(place: str) -> str:
    """``"model.layers.3"`` of ``"model.layers.3.mlp.up"``; empty for what is in no numbered module."""
    parts = place.split(".")
    first = next((i for i, part in enumerate(parts) if part.isdigit()), None)
    return "" if first is None else ".".join(parts[: first + 1])


def _captured(op: Op) -> list[int]:
    """Values from outside that the regions of an op use."""
    found: list[int] = []
    for region in op.regions:
        inside = set(region.arguments)
        for inner in region.ops:
            found += [v for v in (*inner.operands, *_captured(inner)) if v not in inside]
            inside.update(inner.results)
        found += [v for v in region.returns if v not in inside]
    return found


class _Printer:
    """Ops as text, with values numbered in the order of their use."""

    def __init__(self, module: Module, mesh: dict[str, int]) -> None:
        self.values, self.mesh = module.values, mesh
        self.names: dict[int, str] = {}

    def module(self, ops: list[Op], enters: Iterable[int], leaves: list[int], aliases: dict[int, int]) -> str:
        """A module whose main function takes `enters` and gives `leaves`. aliases: the result that takes the memory
        of an argument.
        """
        count = 1
        for size in self.mesh.values():
            count *= size
        axes = ", ".join(f'"{axis}"={size}' for axis, size in self.mesh.items())
        mesh = f"  sdy.mesh @mesh = <[{axes}]>\n" if self.mesh else ""
        arguments = []
        for v in enters:
            parts = [f"tf.aliasing_output = {aliases[v]} : i32"] if v in aliases else []
            arguments.append(f"{self.name(v)}: {self.type(v)}{self._marks(v, parts)}")
        results = ", ".join(f"{self.type(v)}{self._marks(v, [])}" for v in leaves)
        body = "".join(map(self.op, ops))
        ending = f'"func.return"({self._names(leaves)}) : ({self._types(leaves)}) -> ()'
        return (
            f"module @torus attributes {{mhlo.num_partitions = {count} : i32, mhlo.num_replicas = 1 : i32}} {{\n{mesh}"
            f"  func.func public @main({', '.join(arguments)}) -> ({results}) {{\n{body}{ending}\n  }}\n}}\n"
        )

    def op(self, op: Op) -> str:
        """One op in MLIR's generic form."""
        name = _PLAIN.get(op.name, op.name)
        name = name if "." in name else f"stablehlo.{name}"
        first, rest = _properties(op.attributes)
        regions = f" ({', '.join(map(self._region, op.regions))})" if op.regions else ""
        operands = self._names(op.operands)
        given = self._types(op.operands)
        left = f"{self._results(op.results)} = " if op.results else ""
        return f'{left}"{name}"({operands}) {first}{regions} {rest} : ({given}) -> ({self._types(op.results)})\n'

    def _results(self, results: tuple[int, ...]) -> str:
        if len(results) == 1:
            return self.name(results[0])
        group = f"%{len(self.names)}"
        self.names.update({v: f"{group}#{i}" for i, v in enumerate(results)})
        return f"{group}:{len(results)}"

    def _region(self, region: Region) -> str:
        arguments = ", ".join(f"{self.name(v)}: {self.type(v)}" for v in region.arguments)
        head = f"^bb0({arguments}):\n" if arguments else ""
        body = "".join(map(self.op, region.ops))
        given = f'"stablehlo.return"({self._names(region.returns)}) : ({self._types(region.returns)}) -> ()'
        return f"{{\n{head}{body}{given}\n}}"

    def name(self, value: int) -> str:
        return self.names.setdefault(value, f"%{len(self.names)}")

    def type(self, value: int) -> str:
        v = self.values[value]
        return f"tensor<{''.join(f'{s}x' for s in v.shape)}{v.dtype}>" if v.dtype != "token" else "!stablehlo.token"

    def _names(self, values: Iterable[int]) -> str:
        return ", ".join(map(self.name, values))

    def _types(self, values: Iterable[int]) -> str:
        return ", ".join(map(self.type, values))

    def _marks(self, value: int, parts: list[str]) -> str:
        if self.mesh:
            v = self.values[value]
            parts = [*parts, f"sdy.sharding = #sdy.sharding<@mesh, [{_spec(v.spec or ((),) * len(v.shape))}]>"]
        return f" {{{', '.join(parts)}}}" if parts else ""


def _spec(spec: Spec) -> str:
    """Each axis once: a value that is split over two parts of an axis counts as split over all of it in one place."""
    seen: set[str] = set()
    parts = []
    for axes in spec:
        new = [axis for axis in axes if axis not in seen]
        seen.update(new)
        parts.append("{" + ", ".join(f'"{axis}"' for axis in new) + "}")
    return ", ".join(parts)


def _properties(attributes: str) -> tuple[str, str]:
    """``<{...}>`` and what comes after it. Large constants, which MLIR leaves out, become zeros: no figure changes."""
    text = attributes.strip().replace("dense_resource<__elided__>", "dense<0>")
    if not text.startswith("<{"):
        return "", text
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter in "{[") - (letter in "}]")
        if depth == 0 and letter == "}":
            return text[: i + 2], text[i + 2 :].strip()
    return text, ""
