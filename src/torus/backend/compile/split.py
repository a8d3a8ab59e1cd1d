"""A graph in two: what computes on CPU tensors alone, which the CPU does before the device starts, and the rest."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch

_WITH_EFFECTS = torch.ops.higher_order.with_effects
_WRITE = torch.ops.aten.copy_.default
Kind = Literal["argument", "host", "device", "download", "constant", "number", "view"]


class Source(NamedTuple):
    """Where a value comes from: argument, host result or device result number `number`, `value` itself, a symbolic
    number `value` of the arguments' sizes, or the view of argument `number` that has the layout of the fake `value`.
    """

    kind: Kind
    number: int = -1
    value: Any = None


@dataclass
class Split:
    """`host` takes all arguments of the graph; `device` takes `inputs`; `outputs`, and the `writes` to CPU tensors
    (argument number, value), are made from the results of both.
    """

    host: torch.fx.GraphModule | None
    device: torch.fx.GraphModule
    inputs: list[Source]
    outputs: list[Source]
    writes: list[tuple[int, Source]] = field(default_factory=list)


def split(module: torch.fx.GraphModule) -> Split:
    """Split a functional graph whose nodes have fake tensors as their ``meta["val"]``."""
    return _Splitter(module).split()


def on_host(value: Any) -> bool:
    """Whether a node gives CPU tensors, and nothing else."""
    tensors = _tensors(value)
    return bool(tensors) and all(t.device.type == "cpu" for t in tensors)


class _Splitter:
    def __init__(self, module: torch.fx.GraphModule) -> None:
        self.module = module
        self.nodes = list(module.graph.nodes)
        self.arguments = {n: i for i, n in enumerate(n for n in self.nodes if n.op == "placeholder")}
        self.host: set[Any] = set()
        self.numbers: set[Any] = set()
        self.host_results: dict[Any, int] = {}
        for node in self.nodes:
            self.place(node)

    def place(self, node: Any) -> None:
        """Host nodes take and give CPU tensors; numbers, arithmetic on sizes, belong to both sides."""
        value = node.meta.get("val")
        if node.op == "get_attr":
            if isinstance(_attribute(self.module, node.target), torch.Tensor) and on_host(
                _attribute(self.module, node.target)
            ):
                self.host.add(node)
        elif node.op == "call_function":
            sources = node.all_input_nodes
            if _is_number(value) and all(s.op == "placeholder" or s in self.numbers for s in sources):
                self.numbers.add(node)
            elif on_host(value) and all(self.on_host(s) for s in sources):
                self.host.add(node)

    def on_host(self, node: Any) -> bool:
        if node in self.host or node in self.numbers:
            return True
        if node.op == "get_attr":  # a subgraph
            return not isinstance(_attribute(self.module, node.target), torch.Tensor)
        value = node.meta.get("val")
        return node.op == "placeholder" and (on_host(value) or not isinstance(value, torch.Tensor))

    def split(self) -> Split:
        output = self.nodes[-1].args[0]
        flat = list(output) if isinstance(output, (list, tuple)) else [output]
        device, inputs, results = self.device_graph(flat)
        outputs = [self.output(o, results) for o in flat]
        writes = [
            (self.arguments[n.args[0]], self.output(n.args[1], results))
            for n in self.nodes
            if n.target is _WRITE and on_host(n.args[0].meta["val"])
        ]
        return Split(self.host_graph(), device, inputs, outputs, writes)

    def output(self, value: Any, results: dict[Any, int]) -> Source:
        if not isinstance(value, torch.fx.Node):
            return Source("constant", value=value)
        if _is_token(value):
            return Source("constant")  # it orders effects inside of the graph, and nobody looks at it outside
        if value.op == "placeholder":
            return Source("argument", self.arguments[value])
        if value in self.host or value in self.numbers:
            return Source("host", self.host_result(value))
        if _is_number(value.meta.get("val")):
            return Source("number", value=value.meta["val"])
        if value.op == "get_attr":
            return Source("constant", value=_attribute(self.module, value.target))
        if (viewed := self.viewed(value)) is not None:
            return Source("view", viewed, value.meta["val"])
        return Source("download" if on_host(value.meta.get("val")) else "device", results[value])

    def viewed(self, node: Any) -> int | None:
        """The argument of which a node is a view of symbolic layout.

        AOTAutograd replays views of fixed layouts, and reads from the result itself where in the argument others are.
        """
        fake, base = node.meta.get("val"), _base(node)
        if base not in self.arguments or not isinstance(fake, torch.Tensor) or on_host(fake) or not _is_symbolic(fake):
            return None
        viewed = base.meta["val"]
        same = all(read(fake) == read(viewed) for read in (lambda t: t.dtype, torch.is_conj, torch.is_neg))
        return self.arguments[base] if same else None

    def host_result(self, node: Any) -> int:
        return self.host_results.setdefault(node, len(self.host_results))

    def device_graph(self, outputs: Sequence[Any]) -> tuple[torch.fx.GraphModule, list[Source], dict[Any, int]]:
        graph = torch.fx.Graph()
        made: dict[Any, Any] = {}
        inputs: list[Source] = []

        def take(node: Any) -> Any:
            """The node's value inside of the device graph."""
            if node in made:
                return made[node]
            if not self.is_input(node):
                made[node] = graph.node_copy(node, take)
                return made[node]
            made[node] = new = graph.placeholder(f"in_{len(inputs)}")
            new.meta = dict(node.meta)
            if node.op == "placeholder":
                inputs.append(Source("argument", self.arguments[node]))
            elif node in self.host:
                inputs.append(Source("host", self.host_result(node)))
            else:
                constant = _attribute(self.module, node.target)
                new.meta["val"] = torch.empty_strided(
                    constant.shape, constant.stride(), dtype=constant.dtype, device="meta"
                )
                inputs.append(Source("constant", value=constant))
            return new

        device_nodes = [n for n in self.nodes if self.on_device(n)]
        for node in dict.fromkeys(i for n in device_nodes for i in n.all_input_nodes):
            if self.is_input(node):
                take(node)
        for node in device_nodes:
            made[node] = graph.node_copy(node, take)
        ours = dict.fromkeys(
            n
            for n in [*outputs, *(n.args[1] for n in self.nodes if n.target is _WRITE)]
            if isinstance(n, torch.fx.Node)
            and n.op == "call_function"
            and n not in self.host
            and not _is_number(n.meta.get("val"))
            and not _is_token(n)
            and self.viewed(n) is None
        )
        wanted = [n for n in ours if n in outputs or self.copied_to_host(n)]
        graph.output([made[n] for n in wanted])
        graph.eliminate_dead_code(_is_needed)
        return torch.fx.GraphModule(self.module, graph), inputs, {n: i for i, n in enumerate(wanted)}

    def on_device(self, node: Any) -> bool:
        if node.op != "call_function" or node in self.host or node in self.numbers:
            return False
        # Made after the run: the device does not write to CPU tensors.
        return not (node.target is _WRITE and on_host(node.args[0].meta["val"]))

    def is_input(self, node: Any) -> bool:
        return node.op == "placeholder" or node in self.host or (node.op == "get_attr" and not self.is_subgraph(node))

    def copied_to_host(self, node: Any) -> bool:
        return any(
            user.target is _WRITE and on_host(user.args[0].meta["val"]) and user.args[1] is node for user in node.users
        )

    def host_graph(self) -> torch.fx.GraphModule | None:
        if not self.host_results:
            return None
        graph = torch.fx.Graph()
        made: dict[Any, Any] = {}
        for node in self.nodes:
            if node.target is _WRITE and node in self.host:
                made[node] = made[node.args[1]]  # written after the device has run, which may fail
            elif node.op == "placeholder" or node in self.host or node in self.numbers or self.is_subgraph(node):
                made[node] = graph.node_copy(node, lambda n: made[n])
        graph.output([made[n] for n in self.host_results])
        graph.eliminate_dead_code(_is_needed)
        return torch.fx.GraphModule(self.module, graph)

    def is_subgraph(self, node: Any) -> bool:
        return node.op == "get_attr" and isinstance(_attribute(self.module, node.target), torch.fx.GraphModule)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, torch.SymInt, torch.SymFloat, torch.SymBool))


def _is_symbolic(fake: torch.Tensor) -> bool:
    return any(isinstance(n, torch.SymInt) for n in (*fake.shape, *fake.stride(), fake.storage_offset()))


def _base(node: Any) -> Any:
    """What a node is a view of; the node itself where it is none."""
    while node.op == "call_function" and node.args and (node.target is operator.getitem or _gives_views(node.target)):
        node = node.args[0]
    return node


def _gives_views(op: Any) -> bool:
    """Whether the results of an op share the memory of its first argument."""
    if not isinstance(op, torch._ops.OpOverload) or not op._schema.arguments:
        return False
    alias = op._schema.arguments[0].alias_info
    return alias is not None and not alias.is_write


def _is_token(node: Any) -> bool:
    """Whether a node is what an op with an effect gives so that another one comes after it."""
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, torch.fx.Node) and source.target is _WITH_EFFECTS and node.args[1] == 0


def _is_needed(node: Any) -> bool:
    """Whether a node stays even where nothing uses its value."""
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return True  # the draws after it go on from where it leaves the generator
    return node.op in ("placeholder", "output") or node.target in (_WRITE, _WITH_EFFECTS)


def _attribute(module: Any, name: Any) -> Any:
    return operator.attrgetter(name)(module)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in _tensors(v)]
    return [value] if isinstance(value, torch.Tensor) else []
