"""A PyTorch module, or one training step of it, as a graph of ATen ops. No tensor has memory, and no device is asked.

The parameters and inputs become fake tensors of the device, so that PyTorch picks the ops which it picks there. Forward
pass, backward pass and the optimizer's update run once on them, and everything that they call becomes a node of one
functional graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch.utils import _pytree as pytree

from torus.twin.notes import Notes, keep_recomputation
from torus.twin.step import Kind

_FLAGS = {"foreach": False, "fused": False, "capturable": True, "differentiable": False}
"""How an optimizer is traced: a few ops for each parameter, with its step counters on the device."""

Optimizer = torch.optim.Optimizer | Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Value:
    """An argument or a result of a graph."""

    name: str
    kind: Kind
    shape: tuple[int, ...]
    dtype: torch.dtype
    of: str = ""
    """The parameter whose state or gradient it is."""
    replaces: int | None = None
    """Of a result: the argument whose new value it is."""


@dataclass(frozen=True)
class Traced:
    """A functional graph whose placeholders are `arguments` and whose outputs are `results`, in order."""

    name: str
    module: torch.fx.GraphModule
    arguments: tuple[Value, ...]
    results: tuple[Value, ...]


def trace(
    fn: torch.nn.Module | Callable[..., Any],
    inputs: Sequence[Any] | Mapping[str, Any],
    step: Literal["forward", "train"] = "forward",
    loss: Callable[..., Any] | None = None,
    optimizer: Optimizer | None = None,
) -> Traced:
    """The graph of one step. See `torus.twin.capture` for the arguments.

    Raises ValueError for a training step of what has nothing to train.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize
    from torch.fx.experimental.proxy_tensor import make_fx

    from torus.backend.compile.backend import decompositions

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    program = _Program(fn, inputs, step == "train", loss, optimizer, mode)
    with mode, torch.compiler._compile_session_context():
        fakes = program.fakes()
        functional = dispatch_functionalize(program.run, FunctionalTensorMode())
        graph = make_fx(functional, decomposition_table=decompositions(), tracing_mode="real")(*fakes)
    graph.graph.eliminate_dead_code()
    keep_recomputation(graph.graph)
    results = _without_idle(graph, program.results)
    graph.recompile()
    return Traced(program.name, graph, tuple(program.arguments), results)


def _without_idle(graph: torch.fx.GraphModule, results: Sequence[Value]) -> tuple[Value, ...]:
    """Take out the results that are an argument as it was, such as buffers that nobody wrote to."""
    output = next(n for n in reversed(graph.graph.nodes) if n.op == "output")
    kept = [
        (node, value)
        for node, value in zip(output.args[0], results, strict=True)
        if value.replaces is None or _source(node).op != "placeholder"
    ]
    output.args = (tuple(node for node, _ in kept),)
    graph.graph.eliminate_dead_code()
    return tuple(value for _, value in kept)


def _source(node: Any) -> Any:
    while node.target in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
        node = node.args[0]
    return node


class _Program:
    """A step as a function of a flat list of tensors; `arguments` and `results` say what they are."""

    def __init__(self, fn: Any, inputs: Any, train: bool, loss: Any, optimizer: Optimizer | None, mode: Any) -> None:
        self.fn, self.train, self.mode = fn, train, mode
        self.model = fn if isinstance(fn, torch.nn.Module) else None
        self.name = type(fn).__name__ if self.model is not None else getattr(fn, "__name__", type(fn).__name__)
        self.loss = loss or _loss_of
        self.leaves, self.structure = pytree.tree_flatten(_call_of(inputs))
        self.tensors = _tensors_of(self.model)
        self.trained = {name: t for name, t in self.tensors.items() if train and t.requires_grad}
        if train and not self.trained:
            raise ValueError(f"{self.name} has no parameter that requires a gradient: there is nothing to train")
        self.optimizer = _optimizer(optimizer, [*self.trained.values()]) if train else None
        self.states: list[tuple[list[Any], Any]] = []
        self.input_names = _input_names(fn, self.structure, self.leaves)
        self.arguments: list[Value] = []
        self.results: list[Value] = []

    def fakes(self) -> list[torch.Tensor]:
        """A fake tensor of the device for each argument: parameters and buffers, the optimizer's state, the inputs."""
        found = []
        for name, tensor in self.tensors.items():
            kind: Kind = "parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer"
            found.append((Value(name, kind, tuple(tensor.shape), tensor.dtype), self._fake(tensor)))
        if self.optimizer is not None:
            made = {value.name: fake for value, fake in found}
            found += self._state([made[name] for name in self.trained])
        for name, leaf in zip(self.input_names, self.leaves, strict=True):
            if isinstance(leaf, torch.Tensor):
                found.append((Value(name, "input", tuple(leaf.shape), leaf.dtype), self._fake(leaf)))
        self.arguments = [value for value, _ in found]
        return [fake for _, fake in found]

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        with self.mode:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="tpu")

    def _state(self, parameters: list[torch.Tensor]) -> list[tuple[Value, torch.Tensor]]:
        """The state that the optimizer has after its first step, which is taken here on fake tensors."""
        found = []
        gradients = [torch.empty_like(p) for p in parameters]
        with _holding(self.optimizer, parameters, gradients, [{} for _ in parameters]), torch.no_grad():
            _raw_step(self.optimizer)
            states = [dict(self.optimizer.state[p]) for p in parameters]
        for name, state in zip(self.trained, states, strict=True):
            flat, structure = pytree.tree_flatten(state)
            keys = [f"{name}.{pytree.keystr(path).strip('[]').strip(chr(39))}" for path, _ in _paths(state)]
            self.states.append((flat, structure))
            for key, tensor in zip(keys, flat, strict=True):
                if isinstance(tensor, torch.Tensor):
                    found.append((Value(key, "state", tuple(tensor.shape), tensor.dtype, name), tensor))
        return found

    def run(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """The outputs (a loss in training), then the new values of parameters, state and buffers."""
        left = iter(tensors)
        held = {name: next(left).detach() for name in self.tensors}
        parameters = [held[name].requires_grad_() for name in self.trained]
        states = [
            pytree.tree_unflatten([next(left) if isinstance(x, torch.Tensor) else x for x in flat], structure)
            for flat, structure in self.states
        ]
        leaves = [next(left) if isinstance(x, torch.Tensor) else x for x in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        notes = Notes(self.model)
        with notes, torch.device("tpu"), torch.set_grad_enabled(self.train):
            with self._reparametrized(held):
                outputs = self.loss(self.fn, *args, **kwargs) if self.train else self.fn(*args, **kwargs)
            if self.train:
                self._update(outputs, parameters, states, notes)
        return self._results(outputs, held, states)

    @contextmanager
    def _reparametrized(self, held: dict[str, torch.Tensor]) -> Iterator[None]:
        if self.model is None:
            yield
            return
        named = _all_names(self.model)
        first = {id(t): name for name, t in self.tensors.items()}
        values = {name: held[first[id(t)]] for name, t in named.items()}
        with torch.nn.utils.stateless._reparametrize_module(self.model, values):
            yield

    def _update(self, outputs: Any, parameters: list[torch.Tensor], states: list[Any], notes: Notes) -> None:
        """The backward pass and the optimizer's step."""
        total = pytree.tree_leaves(outputs)[0]
        with notes.backward(total), torch.no_grad():
            gradients = torch.autograd.grad(total, parameters, allow_unused=True)
        with notes.optimizer(), torch.no_grad(), _holding(self.optimizer, parameters, gradients, states):
            _raw_step(self.optimizer)
            states[:] = [dict(self.optimizer.state[p]) for p in parameters]

    def _results(self, outputs: Any, held: dict[str, torch.Tensor], states: list[Any]) -> list[torch.Tensor]:
        found = [t for t in pytree.tree_leaves(outputs) if isinstance(t, torch.Tensor)]
        names = ["loss", *(f"output{i}" for i in range(1, len(found)))] if self.train else _output_names(outputs, found)
        values = [Value(n, "input", tuple(t.shape), t.dtype) for n, t in zip(names, found, strict=True)]
        news = [*held.values(), *(t for s in states for t in pytree.tree_leaves(s) if isinstance(t, torch.Tensor))]
        values += [replace(self.arguments[i], replaces=i) for i in range(len(news))]
        self.results = values
        return [t.detach() for t in (*found, *news)]


def _paths(tree: Any) -> list[Any]:
    return pytree.tree_flatten_with_path(tree)[0]


def _loss_of(model: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """What the model calls its loss; a number that it returns; else the mean of what it returns."""
    outputs = model(*args, **kwargs)
    named = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    found = named if named is not None else next(t for t in pytree.tree_leaves(outputs) if isinstance(t, torch.Tensor))
    return found if found.dim() == 0 else found.float().mean()


def _call_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,)), {}


def _input_names(fn: Any, structure: Any, leaves: list[Any]) -> list[str]:
    """The name of each input: that of the function's parameter."""
    call = pytree.tree_unflatten(leaves, structure)
    target = fn.forward if isinstance(fn, torch.nn.Module) else fn
    try:
        known = [p.name for p in inspect.signature(target).parameters.values() if p.kind is not p.VAR_POSITIONAL]
    except (TypeError, ValueError):
        known = []
    names = []
    for path, _ in _paths(call):
        first, *rest = (getattr(key, "idx", getattr(key, "key", None)) for key in path[1:])
        name = first if isinstance(first, str) else (known[first] if first < len(known) else f"input{first}")
        names.append(".".join([name, *map(str, rest)]))
    return names


def _output_names(outputs: Any, tensors: list[torch.Tensor]) -> list[str]:
    named = {id(v): k for k, v in outputs.items()} if isinstance(outputs, Mapping) else {}
    return [named.get(id(t), "output" if len(tensors) == 1 else f"output{i}") for i, t in enumerate(tensors)]


def _tensors_of(model: torch.nn.Module | None) -> dict[str, torch.Tensor]:
    """Parameters and buffers, each once."""
    if model is None:
        return {}
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _all_names(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    parameters = model.named_parameters(remove_duplicate=False)
    return {**dict(parameters), **dict(model.named_buffers(remove_duplicate=False))}


def _optimizer(given: Optimizer | None, trained: list[Any]) -> torch.optim.Optimizer:
    if given is None:
        return torch.optim.AdamW(trained)
    if isinstance(given, torch.optim.LBFGS):
        raise ValueError("LBFGS needs a closure, so that its step is no single program")
    return given if isinstance(given, torch.optim.Optimizer) else given(trained)


def _raw_step(optimizer: Any) -> None:
    inspect.unwrap(type(optimizer).step)(optimizer)


@contextmanager
def _holding(optimizer: Any, parameters: Any, gradients: Any, states: Any) -> Iterator[None]:
    """The optimizer with other tensors in the place of those that it was made with, and their gradients."""
    groups, kept = optimizer.param_groups, optimizer.state
    ours = [p for g in groups for p in g["params"] if p.requires_grad]
    new = dict(zip(map(id, ours), parameters, strict=True))
    flags = [{k: v for k, v in _FLAGS.items() if k in g} for g in groups]
    optimizer.param_groups = [
        {**g, "params": [new[id(p)] for p in g["params"] if id(p) in new], **f} for g, f in zip(groups, flags)
    ]
    optimizer.state = type(kept)(dict, {p: s for p, s in zip(parameters, states) if s})
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    try:
        yield
    finally:
        optimizer.param_groups, optimizer.state = groups, kept
