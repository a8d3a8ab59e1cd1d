"""The optimizer's update of each parameter, as ops at the end of a step's graph.

An optimizer of PyTorch updates one parameter after another, and those of equal sizes in the same way: one of each kind
is traced, and its ops are copied for the others.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torus.twin.notes import AGAIN, PHASE, PLACE, UNIT
from torus.twin.values import Value

_FLAGS = {"foreach": False, "fused": False, "capturable": True, "differentiable": False}
"""How an optimizer is traced: a few ops for each parameter, with its step counters on the device."""

Optimizer = torch.optim.Optimizer | Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True)
class _Update:
    """The graph of ``(*parameters, *gradients, *state) -> (*parameters, *state)``."""

    graph: torch.fx.Graph
    state: list[list[tuple[str, torch.Tensor]]]
    """For each parameter the names and tensors of its state."""


class Updates:
    """What an optimizer does to the parameters `trained`, by name."""

    def __init__(self, optimizer: Optimizer | None, trained: Mapping[str, torch.Tensor], mode: Any) -> None:
        self.mode = mode
        self.trained = dict(trained)
        self.optimizer = _made(optimizer, [*trained.values()])
        self.kinds: dict[Any, _Update] = {}

    def append_to(self, graph: torch.fx.Graph, arguments: list[Value], results: list[Value]) -> None:
        """Put the updates behind a graph that gives gradients, which become new values of parameters and state.

        The new arguments, one for each tensor of the state, come before the inputs.
        """
        output = next(n for n in reversed(graph.nodes) if n.op == "output")
        places = dict(zip([v.name for v in arguments], [n for n in graph.nodes if n.op == "placeholder"]))
        ends = list(zip(output.args[0], results, strict=True))
        gradients = {v.of: node for node, v in ends if v.kind == "gradient" and node is not None}
        kept = [(node, v) for node, v in ends if v.kind != "gradient"]
        first_input = next((i for i, v in enumerate(arguments) if v.kind == "input"), len(arguments))
        inputs = arguments[first_input:]
        made: list[Value] = []
        before = places[inputs[0].name] if inputs else next(n for n in graph.nodes if n.op != "placeholder")
        news: dict[str, Any] = {}
        for unit in self._units(gradients):
            update = self._update(unit)
            state = {}
            for name, parts in zip(unit, update.state, strict=True):
                for key, tensor in parts:
                    value = Value(f"{name}.{key}", "state", tuple(tensor.shape), tensor.dtype, name)
                    with graph.inserting_before(before):
                        state[value.name] = graph.placeholder(f"state_{len(made)}")
                    state[value.name].meta["val"] = tensor
                    made.append(value)
            given = [*(places[n] for n in unit), *(gradients[n] for n in unit), *state.values()]
            with graph.inserting_before(output):
                news.update(zip([*unit, *state], _copy(graph, update.graph, given, unit), strict=True))
        arguments[first_input:] = [*made, *inputs]
        numbers = {v.name: i for i, v in enumerate(arguments)}
        updated = [(node, replace(arguments[numbers[n]], replaces=numbers[n])) for n, node in news.items()]
        plain = [(n, replace(v, replaces=numbers[v.name]) if v.replaces is not None else v) for n, v in kept]
        output.args = (tuple(node for node, _ in (*plain, *updated)),)
        results[:] = [v for _, v in (*plain, *updated)]

    def _units(self, names: Mapping[str, Any]) -> list[list[str]]:
        """Parameters that are updated together: each by itself, unless the optimizer may do otherwise."""
        ours = [n for n in self.trained if n in names]
        return [[n] for n in ours] if type(self.optimizer).__module__.startswith("torch.optim") else [ours]

    def _update(self, unit: Sequence[str]) -> _Update:
        tensors = [self.trained[n] for n in unit]
        groups = [next(i for i, g in enumerate(self.optimizer.param_groups) if _has(g, t)) for t in tensors]
        key = tuple((g, t.shape, t.stride(), t.dtype) for g, t in zip(groups, tensors))
        if key not in self.kinds:
            self.kinds[key] = self._trace(tensors)
        return self.kinds[key]

    def _trace(self, tensors: list[torch.Tensor]) -> _Update:
        from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize
        from torch.fx.experimental.proxy_tensor import make_fx

        from torus.backend.compile.backend import decompositions

        def fakes() -> list[torch.Tensor]:
            return [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="tpu") for t in tensors]

        def run(*flat: torch.Tensor) -> list[torch.Tensor]:
            left = iter(flat)
            parameters, gradients = ([next(left).detach() for _ in tensors] for _ in range(2))
            own = [{k: next(left) if isinstance(v, torch.Tensor) else v for k, v in s.items()} for s in states]
            found = self._step(tensors, parameters, gradients, own)
            return [*parameters, *(v for s in found for v in s.values() if isinstance(v, torch.Tensor))]

        with self.mode, torch.no_grad(), torch.compiler._compile_session_context():
            states = self._step(tensors, fakes(), fakes(), [{} for _ in tensors])
            parts = [[(k, v) for k, v in s.items() if isinstance(v, torch.Tensor)] for s in states]
            functional = dispatch_functionalize(run, FunctionalTensorMode())
            flat = [*fakes(), *fakes(), *(v for part in parts for _, v in part)]
            graph = make_fx(functional, decomposition_table=decompositions(), tracing_mode="real")(*flat).graph
        graph.eliminate_dead_code()
        return _Update(graph, parts)

    def _step(self, ours: Any, parameters: Any, gradients: Any, states: Any) -> list[dict[str, Any]]:
        """The states after a step on other tensors in the place of `ours`."""
        with _holding(self.optimizer, dict(zip(map(id, ours), parameters)), gradients, states):
            inspect.unwrap(type(self.optimizer).step)(self.optimizer)
            return [_flat(self.optimizer.state[p]) for p in parameters]


def _flat(state: Mapping[str, Any]) -> dict[str, Any]:
    strange = [k for k, v in state.items() if not isinstance(v, torch.Tensor) and pytree.tree_leaves(v) != [v]]
    if strange:
        raise ValueError(f"the optimizer's state {strange[0]} is a collection, which a step cannot hold")
    return dict(state)


def _copy(graph: torch.fx.Graph, update: torch.fx.Graph, given: Sequence[Any], unit: Sequence[str]) -> list[Any]:
    known = dict(zip([n for n in update.nodes if n.op == "placeholder"], given, strict=True))
    place = unit[0] if len(unit) == 1 else "optimizer"
    for node in update.nodes:
        if node.op == "output":
            return [known[n] for n in node.args[0]]
        if node.op != "placeholder":
            known[node] = copied = graph.node_copy(node, lambda n: known[n])
            copied.meta.update({PLACE: place, PHASE: "optimizer", AGAIN: False, UNIT: unit[0]})
    return []


def _made(given: Optimizer | None, trained: list[Any]) -> torch.optim.Optimizer:
    if given is None:
        return torch.optim.AdamW(trained)
    if isinstance(given, torch.optim.LBFGS):
        raise ValueError("LBFGS needs a closure, so that its step is no single program")
    return given if isinstance(given, torch.optim.Optimizer) else given(trained)


def _has(group: Mapping[str, Any], tensor: torch.Tensor) -> bool:
    return any(tensor is p for p in group["params"])


@contextmanager
def _holding(optimizer: Any, new: Mapping[int, Any], gradients: Any, states: Any) -> Iterator[None]:
    """The optimizer with other tensors, by the ids of its own, and their gradients and states."""
    groups, kept = optimizer.param_groups, optimizer.state
    flags = [{k: v for k, v in _FLAGS.items() if k in g} for g in groups]
    optimizer.param_groups = [
        {**g, "params": [new[id(p)] for p in g["params"] if id(p) in new], **f} for g, f in zip(groups, flags)
    ]
    optimizer.state = type(kept)(dict, {p: s for p, s in zip(new.values(), states) if s})
    for parameter, gradient in zip(new.values(), gradients, strict=True):
        parameter.grad = gradient
    try:
        yield
    finally:
        optimizer.param_groups, optimizer.state = groups, kept
