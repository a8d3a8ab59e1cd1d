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

from torus.twin.notes import Notes, keep_recomputation, source
from torus.twin.step import Kind
from torus.twin.updates import Optimizer as Optimizer
from torus.twin.updates import Updates
from torus.twin.values import Value


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
    from torch.fx._lazy_graph_module import _use_lazy_graph_module
    from torch.fx.experimental.proxy_tensor import make_fx

    from torus.backend.compile.backend import decompositions

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    program = _Program(fn, inputs, step == "train", loss, mode)
    updates = Updates(optimizer, program.trained, mode) if step == "train" else None
    # In a session of the compiler models do not look at values. The graph is never run: it needs no Python code.
    with mode, torch.compiler._compile_session_context(), _use_lazy_graph_module(True):
        functional = dispatch_functionalize(program.run, FunctionalTensorMode())
        graph = make_fx(functional, decomposition_table=decompositions(), tracing_mode="real")(*program.fakes())
    graph.graph.eliminate_dead_code()
    keep_recomputation(graph.graph)
    if updates is not None:
        updates.append_to(graph.graph, program.arguments, program.results)
    results = _without_idle(graph, program.results)
    return Traced(program.name, graph, tuple(program.arguments), results)


def _without_idle(graph: torch.fx.GraphModule, results: Sequence[Value]) -> tuple[Value, ...]:
    """Take out the results that are an argument as it was, such as buffers that nobody wrote to."""
    output = next(n for n in reversed(graph.graph.nodes) if n.op == "output")
    kept = [
        (node, value)
        for node, value in zip(output.args[0], results, strict=True)
        if value.replaces is None or source(node).op != "placeholder"
    ]
    output.args = (tuple(node for node, _ in kept),)
    graph.graph.eliminate_dead_code()
    return tuple(value for _, value in kept)


class _Program:
    """Forward and backward pass as a function of tensors; `arguments` and `results` say what they are."""

    def __init__(self, fn: Any, inputs: Any, train: bool, loss: Any, mode: Any) -> None:
        self.fn, self.train, self.mode = fn, train, mode
        self.model = fn if isinstance(fn, torch.nn.Module) else None
        self.name = type(fn).__name__ if self.model is not None else getattr(fn, "__name__", type(fn).__name__)
        self.loss = loss or _loss_of
        args, kwargs = _call_of(inputs)
        if loss is not None and not train:
            args = args[: _positional(fn)]  # what is left is for the loss
        self.leaves, self.structure = pytree.tree_flatten((args, kwargs))
        self.tensors = _tensors_of(self.model)
        self.trained = {name: t for name, t in self.tensors.items() if train and t.requires_grad}
        if train and not self.trained:
            raise ValueError(f"{self.name} has no parameter that requires a gradient: there is nothing to train")
        self.arguments = [
            *(Value(n, _kind(t), tuple(t.shape), t.dtype) for n, t in self.tensors.items()),
            *(Value(n, "input", tuple(t.shape), t.dtype) for n, t in self._inputs()),
        ]
        self.results: list[Value] = []

    def _inputs(self) -> list[tuple[str, torch.Tensor]]:
        named = zip(_input_names(self.fn, self.structure, self.leaves), self.leaves, strict=True)
        return [(name, leaf) for name, leaf in named if isinstance(leaf, torch.Tensor)]

    def fakes(self) -> list[torch.Tensor]:
        """A fake tensor of the device for each argument: parameters and buffers, then the inputs."""
        return [fake(self.mode, t) for t in (*self.tensors.values(), *(t for _, t in self._inputs()))]

    def run(self, *tensors: torch.Tensor) -> list[torch.Tensor | None]:
        """The outputs (a loss in training), the gradients, then the new values of buffers."""
        left = iter(tensors)
        held = {name: next(left).detach() for name in self.tensors}
        parameters = [held[name].requires_grad_() for name in self.trained]
        leaves = [next(left) if isinstance(x, torch.Tensor) else x for x in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        notes = Notes(self.model)
        gradients: tuple[Any, ...] = ()
        # Checkpoints call modules in the backward pass too.
        with notes, torch.device("tpu"), torch.set_grad_enabled(self.train), self._reparametrized(held):
            outputs = self.loss(self.fn, *args, **kwargs) if self.train else self.fn(*args, **kwargs)
            if self.train:
                total = pytree.tree_leaves(outputs)[0]
                with notes.backward(total), torch.no_grad():
                    gradients = torch.autograd.grad(total, parameters, allow_unused=True)
        return self._results(outputs, gradients, held)

    @contextmanager
    def _reparametrized(self, held: dict[str, torch.Tensor]) -> Iterator[None]:
        if self.model is None:
            yield
            return
        first = {id(t): name for name, t in self.tensors.items()}
        values = {name: held[first[id(t)]] for name, t in _all_names(self.model).items()}
        with torch.nn.utils.stateless._reparametrize_module(self.model, values):
            yield

    def _results(self, outputs: Any, gradients: Any, held: dict[str, torch.Tensor]) -> list[torch.Tensor | None]:
        found = [t for t in pytree.tree_leaves(outputs) if isinstance(t, torch.Tensor)]
        names = ["loss", *(f"output{i}" for i in range(1, len(found)))] if self.train else _output_names(outputs, found)
        self.results = [Value(n, "input", tuple(t.shape), t.dtype) for n, t in zip(names, found, strict=True)]
        for name, _ in zip(self.trained, gradients):
            self.results.append(Value(name, "gradient", tuple(held[name].shape), held[name].dtype, of=name))
        buffers = [(i, v) for i, v in enumerate(self.arguments) if v.kind == "buffer"]
        self.results += [replace(v, replaces=i) for i, v in buffers]
        every = (*found, *gradients, *(held[v.name] for _, v in buffers))
        return [None if t is None else t.detach() for t in every]


def fake(mode: Any, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the device without memory, of the sizes, strides and dtype of another."""
    with mode:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="tpu")


def _kind(tensor: torch.Tensor) -> Kind:
    return "parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer"


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


def _positional(fn: Any) -> int | None:
    """How many arguments a module or function takes in order; None for any number."""
    parameters = inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


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
        name = known[first] if isinstance(first, int) and first < len(known) else str(first)
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
