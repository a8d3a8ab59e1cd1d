"""What every method is a function of: the value of a model at points, and its gradient there.

Methods see a `Function` only, so that eager, compiled, chunked and sharded runs are one parameter, not other methods.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch

from torus.explain.logits import only_needed
from torus.explain.points import Points, as_points, repeat, repeat_argument, rows
from torus.explain.target import Target, on_host, pick

Differentiable = Callable[[Points], torch.Tensor]
"""The number of each of n rows, (n,), by ops that can be differentiated."""

Program = Callable[[Differentiable, Points], Points]
"""What needs a model's own ops, and not only values and gradients: from these and points to tensors."""


class Function(Protocol):
    """A number for each row of points; `examples` is the `b` of `torus.explain.points`."""

    @property
    def examples(self) -> int: ...

    def value(self, points: Points) -> torch.Tensor:
        """The number of each of n rows, (n,), without a gradient."""

    def grad(self, points: Points) -> tuple[torch.Tensor, Points]:
        """The same, and its gradient with respect to each of the points."""

    def apply(self, program: Program, points: Points) -> Points:
        """A program of the function at points, run as the function runs; its ops are those of one copy of all."""


class ModelFunction:
    """The target of a model as a function of its inputs, or of what a layer gives for them.

    `model` is called with the points and `arguments`; tensors there with a row for each example are repeated as needed.
    With `layer`, points stand for the output of that module, and `inputs` are what the model is called with. A compiled
    model is taken by the module it was made from: `mode` says what runs, and hooks see every call.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        inputs: Points,
        target: Target = None,
        *,
        arguments: Mapping[str, Any] | None = None,
        layer: torch.nn.Module | str | None = None,
    ) -> None:
        self.model = getattr(model, "_orig_mod", model)
        self.inputs = inputs
        self.arguments, self.target = only_needed(self.model, inputs, dict(arguments or {}), on_host(target))
        self.layer = _find(self.model, layer)
        _check(self.model)

    @property
    def examples(self) -> int:
        return rows(self.inputs)

    def rebound(self, inputs: Points, arguments: Mapping[str, Any], target: Target) -> ModelFunction:
        """The same function with other tensors of the same shapes; no `inputs` leaves them as they are."""
        found = copy.copy(self)
        found.inputs, found.arguments, found.target = inputs or self.inputs, dict(arguments), target
        return found

    def origin(self) -> Points:
        """The points of the inputs: themselves, or what the layer gives for them."""
        if self.layer is None:
            return self.inputs
        seen: list[Points] = []
        with torch.no_grad(), _hooked(self.layer, lambda output: seen.append(_tensors(output))):
            self.model(*self.inputs, **self.arguments)
        if len(seen) != 1:
            raise ValueError(f"the layer ran {len(seen)} times in one call of the model; it has to run once")
        return tuple(tensor.detach() for tensor in seen[0])

    def value(self, points: Points) -> torch.Tensor:
        with torch.no_grad():
            return self(points)

    def grad(self, points: Points) -> tuple[torch.Tensor, Points]:
        points = tuple(tensor.detach().requires_grad_() for tensor in points)
        with torch.enable_grad():
            values = self(points)
            if not values.requires_grad:
                return values, tuple(torch.zeros_like(tensor) for tensor in points)
            found = torch.autograd.grad(values.sum(), points, materialize_grads=True)
        return values.detach(), found

    def apply(self, program: Program, points: Points) -> Points:
        return program(self, points)

    def __call__(self, points: Points) -> torch.Tensor:
        """The numbers, (n,), differentiable."""
        times, left = divmod(rows(points), self.examples)
        if left:
            raise ValueError(f"{rows(points)} rows of points are no multiple of {self.examples} examples")
        arguments = {k: repeat_argument(v, self.examples, times) for k, v in self.arguments.items()}
        if self.layer is None:
            return pick(self.model(*points, **arguments), self.target, self.examples)
        with _hooked(self.layer, lambda output: _like(output, points)):
            return pick(self.model(*repeat(self.inputs, times), **arguments), self.target, self.examples)


def model_function(
    model: Callable[..., Any],
    inputs: torch.Tensor | tuple[torch.Tensor, ...],
    target: Target = None,
    *,
    arguments: Mapping[str, Any] | None = None,
    layer: torch.nn.Module | str | None = None,
) -> ModelFunction:
    """`ModelFunction` of inputs as a user gives them."""
    return ModelFunction(model, as_points(inputs), target, arguments=arguments, layer=layer)


@contextlib.contextmanager
def _hooked(layer: torch.nn.Module, action: Callable[[Any], Any]) -> Iterator[None]:
    """`action` sees the layer's output, and replaces it by what it returns unless that is None. Nothing is left."""
    handle = layer.register_forward_hook(lambda module, args, output: action(output))
    try:
        yield
    finally:
        handle.remove()


def _find(model: Callable[..., Any], layer: torch.nn.Module | str | None) -> torch.nn.Module | None:
    if layer is None or isinstance(layer, torch.nn.Module):
        return getattr(layer, "_orig_mod", layer)
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"the layer {layer!r} is a name, and the model is no module")
    modules = dict(model.named_modules())
    if layer not in modules:
        raise ValueError(f"the model has no layer {layer!r}; it has {', '.join(list(modules)[1:12])}, ...")
    return modules[layer]


def _check(model: Callable[..., Any]) -> None:
    """Rows must not depend on each other, nor a call on chance."""
    if not isinstance(model, torch.nn.Module):
        return
    for name, module in model.named_modules():
        kind = type(module).__name__
        if module.training and ("Dropout" in kind or "BatchNorm" in kind):
            raise ValueError(
                f"{name or 'the model'} ({kind}) is in training mode, where a call is random or mixes examples; call "
                "model.eval() first"
            )


def _tensors(output: Any) -> Points:
    return (output,) if isinstance(output, torch.Tensor) else tuple(t for t in output if isinstance(t, torch.Tensor))


def _like(output: Any, points: Points) -> Any:
    """Points in the place of the tensors of a layer's output."""
    if isinstance(output, torch.Tensor):
        return points[0]
    left = iter(points)
    return type(output)(next(left) if isinstance(item, torch.Tensor) else item for item in output)
