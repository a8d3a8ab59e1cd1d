"""A whole training step as one program: forward, backward, and the optimizer's update.

`torch.compile` of a step makes three programs, because Dynamo leaves its graph at `backward()` and at the optimizer.
Here the step is traced as one function of parameters, buffers, the optimizer's state, its learning rates, and the
batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torus.backend.compile.options import Options

Loss = Callable[..., Any]
_FLAGS = {"foreach": True, "fused": False, "capturable": True, "differentiable": False}
"""How the optimizer is traced: in lists of tensors, with its step counters on the device."""


class TrainStep:
    """What `torch.tpu.compiler.train_step` returns; see there."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Loss,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        strange = [n for n, p in model.named_parameters() if p.device.type != "tpu"]
        if strange:
            raise ValueError(
                f'the parameters {", ".join(strange[:3])} are not on the device: call model.to("tpu") first'
            )
        if isinstance(optimizer, torch.optim.LBFGS):
            raise ValueError("LBFGS needs a closure, so that its step is no single program")
        self.model, self.optimizer, self.loss = model, optimizer, loss
        self.options = Options.parse(mode, options)
        self.raw_step = inspect.unwrap(type(optimizer).step)
        self.modules = list(model.modules())
        self.places = _places(model, {id(p) for p in self._parameters()})
        self.has_state: set[int] = set()
        """Parameters whose state was made."""
        self.traced: dict[Any, tuple[Callable[..., Any], Any]] = {}

    def __call__(self, *batch: Any) -> Any:
        leaves, structure = pytree.tree_flatten(batch)
        self._make_state()
        key = (structure, tuple(map(_kind, leaves)), self._settings(), torch.get_default_dtype())
        if key not in self.traced:
            made = self._trace(leaves, structure)
            if made is None:
                return self._eager(batch)
            self.traced[key] = made
        program, results = self.traced[key]
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        with torch.no_grad():
            return pytree.tree_unflatten(list(program(*self._held(), *self._rates(), *tensors)), results)

    # What a step reads and writes

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def _others(self) -> dict[str, torch.Tensor]:
        """Tensors of the model that the optimizer does not have."""
        return {name: holder[key] for name, holder, key in self.places if holder[key] is not None}

    def _held(self) -> list[torch.Tensor]:
        state = [t for p in self._parameters() for t in _state_tensors(self.optimizer.state[p])]
        return [*self._parameters(), *self._others().values(), *state]

    def _rates(self) -> list[torch.Tensor]:
        rates = [group["lr"] for group in self.optimizer.param_groups]
        return [r if isinstance(r, torch.Tensor) else torch.tensor(r, dtype=torch.float64) for r in rates]

    def _settings(self) -> tuple[Any, ...]:
        """What of the optimizer and the model is part of the program."""
        modes = tuple(module.training for module in self.modules)
        trained = tuple(p.requires_grad for p in self._parameters())
        known = [{k: v for k, v in g.items() if k not in ("params", "lr")} for g in self.optimizer.param_groups]
        return modes, trained, *(repr(sorted(group.items(), key=lambda item: item[0])) for group in known)

    def _make_state(self) -> None:
        """State that the optimizer would make in its first step, with step counters on the device."""
        groups = [g for g in self.optimizer.param_groups if any(id(p) not in self.has_state for p in g["params"])]
        self.has_state.update(id(p) for group in groups for p in group["params"])
        make = getattr(self.optimizer, "_init_group", None)
        if not groups or make is None:
            return
        count = len(inspect.signature(make).parameters) - 1
        with self._flags():
            for group in groups:
                kept = [p.grad for p in group["params"]]
                for p in group["params"]:
                    p.grad = torch.empty_like(p)
                make(group, *([] for _ in range(count)))
                for p, gradient in zip(group["params"], kept):
                    p.grad = gradient

    @contextmanager
    def _flags(self) -> Iterator[None]:
        before = [dict(group) for group in self.optimizer.param_groups]
        for group in self.optimizer.param_groups:
            group.update({k: v for k, v in _FLAGS.items() if k in group})
        try:
            yield
        finally:
            for group, old in zip(self.optimizer.param_groups, before):
                group.update(old)

    # Tracing

    def _trace(self, leaves: list[Any], structure: Any) -> tuple[Callable[..., Any], Any] | None:
        """The program and the structure of its results; None when the optimizer made state meanwhile."""
        from torch.fx.experimental.proxy_tensor import make_fx

        from torus.backend.compile.backend import compile_graph

        traced_step = _TracedStep(self, leaves, structure)
        given = [t.detach() for t in (*self._held(), *self._rates(), *leaves) if isinstance(t, torch.Tensor)]
        with torch.compiler._compile_session_context():  # optimizers then take a learning rate that is a tensor
            graph = make_fx(traced_step.run, tracing_mode="fake")(*given)
        if traced_step.grew:
            return None
        with torch.no_grad():
            return compile_graph(graph, given, self.options), traced_step.results

    def _eager(self, batch: tuple[Any, ...]) -> Any:
        results = self.loss(self.model, *batch)
        first = results[0] if isinstance(results, tuple) else results
        first.backward()
        with self._flags():
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return pytree.tree_map(lambda t: t.detach() if isinstance(t, torch.Tensor) else t, results)


class _TracedStep:
    """The step as a function of a flat list of tensors, for one kind of batch."""

    def __init__(self, step: TrainStep, leaves: list[Any], structure: Any) -> None:
        self.step, self.leaves, self.structure = step, leaves, structure
        self.results: Any = None
        self.grew = False

    def run(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        step, left = self.step, iter(tensors)
        parameters = [next(left).detach().requires_grad_(p.requires_grad) for p in step._parameters()]
        others = {name: next(left) for name in step._others()}
        names = {id(p): name for name, p in step.model.named_parameters(remove_duplicate=False)}
        state = [
            pytree.tree_map(lambda t: next(left) if isinstance(t, torch.Tensor) else t, dict(step.optimizer.state[p]))
            for p in step._parameters()
        ]
        rates = [next(left) for _ in step.optimizer.param_groups]
        batch = [next(left) if isinstance(x, torch.Tensor) else x for x in self.leaves]
        ours = {names[id(p)]: new for p, new in zip(step._parameters(), parameters) if id(p) in names}
        with torch.enable_grad(), torch.nn.utils.stateless._reparametrize_module(step.model, {**ours, **others}):
            found = step.loss(step.model, *pytree.tree_unflatten(batch, self.structure))
        flat, self.results = pytree.tree_flatten(found)
        wanted = [p for p in parameters if p.requires_grad]
        gradients = torch.autograd.grad(flat[0], wanted, allow_unused=True)
        with self._swapped(parameters, state, rates), torch.no_grad():
            for p, gradient in zip(wanted, gradients):
                p.grad = gradient
            before = pytree.tree_structure(state)
            step.raw_step(step.optimizer)
            after = [dict(step.optimizer.state[p]) for p in parameters]
            self.grew = pytree.tree_structure(after) != before or _tensor_count(after) != _tensor_count(state)
        return [r.detach() for r in flat]

    @contextmanager
    def _swapped(self, parameters: list[Any], state: list[Any], rates: list[Any]) -> Iterator[None]:
        """The optimizer with traced tensors in the place of its own."""
        optimizer = self.step.optimizer
        groups, kept, left = optimizer.param_groups, optimizer.state, iter(parameters)
        optimizer.param_groups = [
            {
                **g,
                "params": [next(left) for _ in g["params"]],
                "lr": rate,
                **{k: v for k, v in _FLAGS.items() if k in g},
            }
            for g, rate in zip(groups, rates)
        ]
        optimizer.state = type(kept)(dict, zip(parameters, state)) if hasattr(kept, "default_factory") else kept
        try:
            yield
        finally:
            optimizer.param_groups, optimizer.state = groups, kept


def _places(model: torch.nn.Module, without: set[int]) -> list[tuple[str, dict[str, Any], str]]:
    """Where the model keeps its buffers and the parameters whose ids are not in `without`: name, dict, key."""
    found = []
    for path, module in model.named_modules():
        for holder in (module._parameters, module._buffers):
            for key, value in holder.items():
                if value is not None and id(value) not in without:
                    found.append((f"{path}.{key}" if path else key, holder, key))
    return found


def _state_tensors(state: Any) -> list[torch.Tensor]:
    values = state.values()
    if any(isinstance(v, (list, tuple, dict)) for v in values):
        values = pytree.tree_leaves(dict(state))
    return [v for v in values if isinstance(v, torch.Tensor)]


def _tensor_count(state: Any) -> int:
    return sum(isinstance(t, torch.Tensor) for t in pytree.tree_leaves(state))


def _kind(leaf: Any) -> Any:
    return (leaf.shape, leaf.dtype, leaf.device, leaf.stride()) if isinstance(leaf, torch.Tensor) else leaf
