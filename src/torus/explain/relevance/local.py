"""One op of a tape as a rule sees it, at one or two points, and what rules are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from torus.explain.relevance.step import Step

Tensors = tuple[torch.Tensor, ...]
Given = Sequence[torch.Tensor | None]
"""A multiplier for each result of an op; None for one that nothing depends on."""


@dataclass(frozen=True)
class Local:
    """An op with its active inputs and its results at the points and, for methods that compare, at the baselines."""

    step: Step
    dtype: torch.dtype
    inputs: Tensors
    outputs: tuple[torch.Tensor | None, ...]
    inputs_b: Tensors = ()
    outputs_b: tuple[torch.Tensor | None, ...] = ()

    @property
    def middle(self) -> Tensors:
        """Halfway between the two."""
        return tuple((self.number(x) + self.number(b)) / 2 for x, b in zip(self.inputs, self.inputs_b, strict=True))

    @property
    def changes(self) -> Tensors:
        """How much each input changes from the baselines to the points."""
        return tuple(map(self.change, self.inputs, self.inputs_b))

    def number(self, tensor: torch.Tensor) -> torch.Tensor:
        """Booleans and integers as numbers, which change and have multipliers too."""
        return tensor if tensor.is_floating_point() or tensor.is_complex() else tensor.to(self.dtype)

    def change(self, x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """``x - b``; 0 where both are the same infinity."""
        return change(self.number(x), self.number(b))

    def argument(self, name: str) -> object:
        """What the op was called with under a name of its schema, or the default; a list of tensors is flattened."""
        schema = self.step.op._schema.arguments
        args, kwargs = torch.utils._pytree.tree_unflatten(list(self.step.arguments), self.step.structure)
        given = dict(zip((a.name for a in schema), args, strict=False)) | kwargs
        return given.get(name, next(a.default_value for a in schema if a.name == name))


def change(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``x - b``; 0 where both are the same infinity."""
    return torch.where(x == b, torch.zeros_like(x), x - b)


def vjp(local: Local, at: Tensors, given: Given) -> Tensors:
    """The given multipliers times the derivative of the op at some inputs: one multiplier for each input."""
    leaves = tuple(tensor.detach().requires_grad_(tensor.is_floating_point() or tensor.is_complex()) for tensor in at)
    with torch.enable_grad():
        results = local.step.run(leaves)
        pairs = [(y, m) for y, m in zip(results, given, strict=True) if m is not None and y.requires_grad]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        zeros = tuple(torch.zeros_like(local.number(leaf)) for leaf in leaves)
        if not pairs or not wanted:
            return zeros
        found = iter(
            torch.autograd.grad(
                [y for y, _ in pairs],
                wanted,
                [m.to(y.dtype) for y, m in pairs],
                allow_unused=True,
                materialize_grads=True,
                create_graph=any(m.requires_grad for _, m in pairs),
            )
        )
    return tuple(next(found) if leaf.requires_grad else zero for leaf, zero in zip(leaves, zeros, strict=True))


def safe_ratio(numerator: torch.Tensor, denominator: torch.Tensor, otherwise: torch.Tensor | float) -> torch.Tensor:
    """The ratio, and `otherwise` where the denominator is 0."""
    zero = denominator == 0
    ratio = numerator / torch.where(zero, torch.ones_like(denominator), denominator)
    return torch.where(zero, otherwise, ratio)
