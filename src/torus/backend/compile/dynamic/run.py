"""A graph with dynamic sizes as a program of fixed, padded ones.

Elements outside of a tensor's real part may have any value. Ops that work element by element need no care; ops that
bring elements together first put a value there that changes nothing. An op that is neither raises `Unpadded`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from torus.backend.compile.dynamic.arithmetic import compute
from torus.backend.compile.dynamic.extents import (
    Extent,
    Extents,
    Part,
    Unpadded,
    compact,
)
from torus.backend.compile.graph import GraphFunction, Run, nest, tensors
from torus.backend.compile.nodes import lower_call, parameters
from torus.backend.lowering.apply import Operand

aten = torch.ops.aten
Results = tuple[list[Any], list[Extents]]
Handle = Callable[["PaddedRun", Any, list[Any], dict[str, Any]], Results]


@dataclass(frozen=True)
class Handler:
    """How ops work on padded operands: ``fn(run, node, args, kwargs)`` gives the results and their extents.

    aligns: it sees to operands that are cut differently. uniform: what was the same everywhere still is.
    """

    fn: Handle
    aligns: bool = False
    uniform: bool = False


HANDLERS: dict[str, Handler] = {}
POINTWISE = "pointwise"
"""The row for all ops that PyTorch marks as working element by element."""


def handles(*names: str, aligns: bool = False, uniform: bool = False) -> Callable[[Handle], Handle]:
    """Register how ops (names without overload) work on padded operands; see `Handler`."""

    def register(fn: Handle) -> Handle:
        HANDLERS.update(dict.fromkeys(names, Handler(fn, aligns, uniform)))
        return fn

    return register


class PaddedRun(Run):
    """One walk through the nodes; `real` has the real size of each symbol that is padded."""

    def __init__(self, function: GraphFunction, generator: Any, real: dict[Any, Any]) -> None:
        super().__init__(function, generator)
        self.real = real
        self.symbols = frozenset(real)
        self.known: dict[Any, Any] = {}
        self.extents: dict[Any, Any] = {}

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        for node in self.function.placeholders:
            fake = node.meta.get("val")
            if isinstance(fake, torch.Tensor):
                self.extents[node] = self.extents_of(fake)
        if any(any(self.extents[p]) for p in self.function.written):
            raise Unpadded("the graph writes to an argument of a dynamic size")
        return super().run(arguments)

    def array(self, value: Any) -> Any:
        """An output with its real part in front."""
        if not isinstance(value, torch.fx.Node):
            return value
        array = self.values[value]
        for dim, extent in enumerate(self.extents.get(value) or ()):
            array, _ = compact(array, dim, extent)
        return array

    # --- sizes

    def number(self, size: Any) -> Any:
        """The real value of a size: a Python number, or a traced one."""
        expression = size.node.expr if isinstance(size, (torch.SymInt, torch.SymFloat)) else None
        return size if expression is None else self.evaluate(expression)

    def evaluate(self, expression: Any) -> Any:
        if expression.is_number:
            return int(expression) if expression.is_integer else float(expression)
        if expression not in self.known:
            self.known[expression] = self._evaluate(expression)
        return self.known[expression]

    def _evaluate(self, expression: Any) -> Any:
        if not self.symbols & expression.free_symbols:
            return self.bindings.number(expression)
        if expression.is_Symbol:
            return self.real[expression]
        return compute(expression, [self.evaluate(a) for a in expression.args])

    def varies(self, size: Any) -> bool:
        """Whether a size is padded."""
        return isinstance(size, torch.SymInt) and bool(self.symbols & size.node.expr.free_symbols)

    def is_dynamic(self, fake: Any) -> bool:
        """Whether a size of a tensor, or of any of several, is padded."""
        if isinstance(fake, (list, tuple)):
            return any(self.is_dynamic(f) for f in fake)
        return isinstance(fake, torch.Tensor) and any(self.varies(s) for s in fake.shape)

    def extents_of(self, fake: torch.Tensor, uniform: bool = False) -> Extents:
        """The extents of a tensor whose real elements come first in every dimension."""
        return tuple(
            Extent((Part(int(self.bindings.value(size)), self.evaluate(size.node.expr)),), uniform)
            if self.varies(size)
            else None
            for size in symbolic_sizes(fake)
        )

    # --- nodes

    def python(self, node: Any) -> Any:
        value = super().python(node)
        source = node.args[0] if node.args else None
        if node.target is operator.getitem and isinstance(source, torch.fx.Node) and source in self.extents:
            self.extents[node] = self.extents[source][node.args[1]]
        return value

    def write(self, target: Any, source: Any) -> Any:
        if isinstance(source, torch.fx.Node) and any(self.extents.get(source) or ()):
            raise Unpadded("the graph writes to an argument of a dynamic size")
        return super().write(target, source)

    def call(self, node: Any) -> Any:
        touched = any(any_extent(self.extents.get(n)) for n in node.all_input_nodes) or self.is_dynamic(
            node.meta.get("val")
        )
        sized = any(
            self.varies(n.meta.get("val")) or isinstance(n.meta.get("val"), torch.SymFloat)
            for n in node.all_input_nodes
        )
        plain = not isinstance(node.target, torch._ops.OpOverload) or node.target is aten.copy_.default
        if plain or not (touched or sized):
            if touched and isinstance(node.target, torch._ops.HigherOrderOperator):
                raise Unpadded(f"{node.target} takes tensors of dynamic sizes")
            return super().call(node)
        fake = node.meta.get("val")
        if not isinstance(fake, (torch.Tensor, list, tuple)):
            return super().call(node)
        handler = self.handler(node.target)
        if not handler.aligns and sum(any_extent(self.of(n)) for n in node.all_input_nodes) > 1:
            for source in operand_nodes(node):
                self.compact(source)  # so that all of them are cut alike
        args, kwargs = self.arguments(node)
        results, extents = handler.fn(self, node, args, kwargs)
        if not handler.uniform:
            extents = [tuple(e and replace(e, uniform=False) for e in found) for found in extents]
        self.extents[node] = nest(fake, iter(extents))
        return nest(fake, iter(results))

    def handler(self, op: Any) -> Handler:
        name = op._schema.name.removeprefix("aten::")
        if name in HANDLERS:
            return HANDLERS[name]
        if torch.Tag.pointwise in op.tags:
            return HANDLERS[POINTWISE]
        raise Unpadded(f"{op} does not work on padded tensors")

    def arguments(self, node: Any) -> tuple[list[Any], dict[str, Any]]:
        """Operands; sizes that the op computes with are real, sizes that say how large something is are padded."""
        kinds = {p.name: p.kind for p in parameters(node.target)}
        names = [p.name for p in parameters(node.target)]
        args = [self.argument(a, kinds[names[i]]) for i, a in enumerate(node.args)]
        return args, {k: self.argument(v, kinds.get(k, "static")) for k, v in node.kwargs.items()}

    def argument(self, value: Any, kind: str) -> Any:
        if kind in ("number", "tensor") and isinstance(value, torch.fx.Node):
            size = value.meta.get("val")
            if isinstance(size, (torch.SymInt, torch.SymFloat)):
                real = self.number(size)
                return real if isinstance(real, (int, float)) else Operand(real, 0)
        return self.operand(value)

    def of(self, node: Any) -> Extents:
        """The extents of an argument."""
        if not isinstance(node, torch.fx.Node):
            return ()
        fake = node.meta.get("val")
        if not isinstance(fake, torch.Tensor):
            return ()
        found, rank = self.extents.get(node), len(fake.shape)
        return tuple(found[:rank]) if found is not None else (None,) * rank

    def compact(self, node: Any) -> None:
        """Move what counts to the front of each dimension of a value."""
        array, extents = self.values[node], list(self.of(node))
        for dim, extent in enumerate(extents):
            array, extents[dim] = compact(array, dim, extent)
            if extents[dim] is not None and extent is not extents[dim]:
                # The size that PyTorch gives it: one value, by which extents are compared.
                extents[dim] = self.extents_of(node.meta["val"])[dim] or extents[dim]
        self.values[node], self.extents[node] = array, tuple(extents)

    def plain(self, node: Any, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
        """The op on padded operands."""
        outs = [self.bindings.spec(f) for f in tensors(node.meta.get("val"))]
        return lower_call(node.target, args, kwargs, outs, self.random_state(node))

    def fixed(self, node: Any) -> list[tuple[int, ...]]:
        """The padded sizes of the results."""
        return [self.bindings.sizes(f.shape) if f is not None else () for f in tensors(node.meta.get("val"))]


def symbolic_sizes(fake: torch.Tensor) -> list[Any]:
    """The sizes of a fake tensor, for which PyTorch's types know numbers only."""
    return list(fake.shape)


def any_extent(extents: Any) -> bool:
    """Whether a dimension of a value, or of any of several, is padded."""
    if isinstance(extents, (list, tuple)):
        return any(any_extent(e) for e in extents)
    return extents is not None


def operand_nodes(node: Any) -> list[Any]:
    """The tensors among the arguments of a node."""
    return [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)]


def with_array(operand: Any, array: Any) -> Operand:
    """Another array in the place of an operand's."""
    return Operand(array, operand.category)


def axes(dims: Any, rank: int) -> list[int]:
    """Dimensions counted from the first; all of them where none is named."""
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return list(range(rank))
    return [d % rank if rank else 0 for d in (dims if isinstance(dims, (list, tuple)) else [dims])]


def given(node: Any, name: str, default: Any = None) -> Any:
    """An argument of a node by its name."""
    for i, parameter in enumerate(parameters(node.target)):
        if parameter.name == name:
            found = node.args[i] if i < len(node.args) else node.kwargs.get(name, parameter.default)
            return default if found is None else found
    return default


def meta(value: Any) -> Any:
    """What is known of an argument: the fake of a node, else the value itself."""
    return value.meta.get("val") if isinstance(value, torch.fx.Node) else value
