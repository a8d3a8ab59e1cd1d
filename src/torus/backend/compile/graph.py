"""A graph of ATen ops as one function over JAX arrays, through the rules that eager mode uses."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from torus.backend.compile.errors import CompileError
from torus.backend.compile.nodes import find_rule, lower_call
from torus.backend.compile.precision import noted
from torus.backend.compile.symbols import Bindings
from torus.backend.lowering.apply import Operand, current, tracing
from torus.backend.lowering.lazy import jax, jnp
from torus.backend.lowering.passes import ASKED

_WRITE = torch.ops.aten.copy_.default
_OF_STORAGES = (
    torch.ops.aten.as_strided.default,
    torch.ops.aten.as_strided_copy.default,
    torch.ops.aten.as_strided_scatter.default,
)


class GraphFunction:
    """Calls the rules of a graph's nodes in order.

    The graph is functional, as AOTAutograd and torch.export make it; the only writes are `copy_` to placeholders.
    `bindings` has the values of the graph's symbolic sizes.
    """

    def __init__(self, module: torch.fx.GraphModule, bindings: Bindings | None = None) -> None:
        self.module = module
        self.bindings = bindings or Bindings()
        self.placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        self.written = written_placeholders(module.graph)
        self.draws = count_draws(module.graph)

    def __call__(self, *arguments: Any, generator: Any = None) -> list[Any]:
        """The outputs, then the new values of written placeholders, in their order.

        arguments: an array (a number for a number) for each placeholder. generator: the state for random ops.
        Raises CompileError for an op that cannot be lowered.
        """
        return Run(self, generator).run(arguments)


class Run:
    """One walk through the nodes; `values` has what each of them gave."""

    def __init__(self, function: GraphFunction, generator: Any) -> None:
        self.function = function
        self.bindings = function.bindings
        self.generator = generator
        self.drawn = 0
        self.values: dict[Any, Any] = {}
        self.writes: dict[Any, Any] = {}

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        self.values.update(zip(self.function.placeholders, arguments, strict=True))
        outputs: Any = ()
        for node in self.function.module.graph.nodes:
            if node.op == "output":
                outputs = node.args[0]
            elif node.op != "placeholder":
                self.values[node] = self.node(node)
        flat = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        return [self.array(o) for o in flat] + [self.writes[p] for p in self.function.written]

    def node(self, node: Any) -> Any:
        if node.op == "get_attr":
            return _attribute(self.function.module, node.target)
        said = noted(node)
        try:
            with tracing(replace(current(), precision=ASKED[said])) if said else nullcontext():
                return self.call(node)
        except CompileError:
            raise
        except Exception as error:
            raise CompileError(_explain(node, error)) from error

    def call(self, node: Any) -> Any:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            from torus.backend.compile import higher_order

            return higher_order.lower(self, node)
        if node.target is _WRITE:
            return self.write(*node.args[:2])
        if not isinstance(node.target, torch._ops.OpOverload):
            return self.python(node)
        fake = node.meta.get("val")
        if isinstance(fake, (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self.bindings.value(fake)
        if node.target in _OF_STORAGES:
            _check_whole(node.args[0])
        args = [self.operand(a) for a in node.args]
        kwargs = {k: self.operand(v) for k, v in node.kwargs.items()}
        outs = [self.bindings.spec(f) for f in tensors(fake)]
        checks = current().checks
        before = len(checks or ())
        results = iter(lower_call(node.target, args, kwargs, outs, self.random_state(node)))
        if checks is not None:
            place = _place(node).replace("{", "{{").replace("}", "}}")  # messages are formatted
            checks[before:] = [(report, message + place) for report, message in checks[before:]]
        return nest(fake, results)

    def python(self, node: Any) -> Any:
        """Arithmetic on sizes, and picking from the results of an op."""
        fake = node.meta.get("val")
        if isinstance(fake, (torch.SymInt, torch.SymFloat, torch.SymBool)) and self.bindings.knows(fake):
            return self.bindings.value(fake)
        args = torch.fx.node.map_arg(node.args, lambda n: self.values[n])
        return node.target(*args, **node.kwargs)

    def write(self, target: Any, source: Any) -> Any:
        fake = target.meta["val"]
        spec = self.bindings.spec(fake)
        (value,) = lower_call(torch.ops.aten._to_copy.default, [self.operand(source)], {}, [spec])
        value = jnp.broadcast_to(value, spec.shape)
        self.writes[target] = self.values[target] = value
        return value

    def random_state(self, node: Any) -> Any:
        """The state of the next draw; None for an op that draws nothing."""
        rule = find_rule(node.target)
        if rule is None or self.generator is None or not rule.draws:
            return None
        seed_low, seed_high, low, high = (self.generator[i] for i in range(4))
        moved = low + jnp.uint32(self.drawn)
        self.drawn += 1
        return jnp.stack([seed_low, seed_high, moved, high + (moved < low).astype("uint32")])

    def operand(self, value: Any) -> Any:
        """An argument of a node with its arrays as operands, its sizes as numbers."""
        if isinstance(value, torch.fx.Node):
            return self.operand(self.values[value])
        if isinstance(value, (list, tuple)):
            return [self.operand(v) for v in value]
        if hasattr(value, "aval") or isinstance(value, jax.Array):
            return Operand(value, 2 if value.ndim else 1)
        return self.bindings.value(value)

    def array(self, value: Any) -> Any:
        """The array of a graph output; None for what is none."""
        return self.values[value] if isinstance(value, torch.fx.Node) else value


def written_placeholders(graph: Any) -> list[Any]:
    """Placeholders that a `copy_` writes to, in their own order."""
    targets = {n.args[0] for n in graph.nodes if n.target is _WRITE and n.args[0].op == "placeholder"}
    return [n for n in graph.nodes if n in targets]


def count_draws(graph: Any) -> int:
    """How many nodes draw random numbers."""
    rules = [find_rule(n.target) for n in graph.nodes if n.op == "call_function"]
    return sum(1 for rule in rules if rule is not None and rule.draws)


def _attribute(module: Any, name: str) -> Any:
    value = module
    for part in name.split("."):
        value = getattr(value, part)
    if isinstance(value, torch.Tensor):
        raise CompileError(f"the constant tensor {name} of the graph was not made an argument")
    return value


def _check_whole(node: Any) -> None:
    """`as_strided` of a tensor sees its storage, of which a graph has no more than the tensor."""
    fake = node.meta.get("val")
    if isinstance(fake, torch.Tensor):
        nbytes = fake.untyped_storage().nbytes()
        if fake.storage_offset() != 0 or nbytes != fake.numel() * fake.element_size():
            raise NotImplementedError("as_strided of a part of a storage")


def tensors(fake: Any) -> list[Any]:
    """The tensors (None for those left out) that a node gives, in order."""
    if isinstance(fake, (list, tuple)):
        return [f for value in fake for f in tensors(value)]
    return [fake] if fake is None or isinstance(fake, torch.Tensor) else []


def nest(fake: Any, results: Any) -> Any:
    """Results, one after another, in the lists in which a node gives them."""
    if isinstance(fake, (list, tuple)):
        return [nest(value, results) for value in fake]
    return next(results) if fake is None or isinstance(fake, torch.Tensor) else fake


def _explain(node: Any, error: Exception) -> str:
    """What could not be lowered: op, sizes, and the user's line."""

    def show(value: Any) -> str:
        if isinstance(value, torch.fx.Node):
            return show(value.meta.get("val"))
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(show(v) for v in value) + "]"
        return repr(value)

    arguments = [show(a) for a in node.args] + [f"{k}={show(v)}" for k, v in node.kwargs.items()]
    text = f"{node.target}({', '.join(arguments)}) cannot be compiled for the tpu device: {error}"
    return text + _place(node)


def _place(node: Any) -> str:
    """The user's line of a node, in words."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
    files = [i for i, line in enumerate(lines) if line.startswith("File ")]
    if not files:
        return ""
    return "\n" + "\n   ".join(f"in {node.target}, at {lines[files[-1]]}".splitlines() + lines[files[-1] + 1 :][:1])


def promised(fakes: Sequence[Any], bindings: Bindings) -> list[Any]:
    """Dtype, sizes and strides of each tensor that a graph gives, as PyTorch's meta kernels promise them."""
    return [None if f is None else (f.dtype, bindings.sizes(f.shape), bindings.sizes(f.stride())) for f in fakes]
