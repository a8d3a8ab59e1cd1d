"""Layer-wise relevance propagation by op. The relevance of a tensor is its value times its multiplier.

Bach et al.: On pixel-wise explanations for non-linear classifier decisions by layer-wise relevance propagation (2015);
Montavon et al.: Layer-wise relevance propagation, an overview (2019); for transformers Ali et al.: XAI for transformers,
better explanations through conservative propagation (2022) and Achtibat et al.: AttnLRP (2024).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from torus.explain.relevance.deeplift import same
from torus.explain.relevance.local import Given, Local, Tensors, safe_ratio, vjp
from torus.explain.relevance.rules import BILINEAR, CHOICES, ELEMENTWISE, LINEAR
from torus.explain.relevance.scales import ROOTS, scales
from torus.explain.relevance.step import Step
from torus.explain.relevance.table import Rule, Table
from torus.explain.relevance.tape import Tape

Linear = Literal["epsilon", "gamma", "alpha_beta"]

SOFTMAX = frozenset({"aten::_softmax", "aten::_log_softmax", "aten::logsumexp"})

ABSORBING = frozenset(f"aten::{name}" for name in (BILINEAR + " add sub rsub").split()) | SOFTMAX
"""Ops with biases and constants, which have relevance too, and those that the softmax rule is a Taylor expansion of."""


@dataclass(frozen=True)
class LrpRules:
    """Which rules: `linear` for products with weights, `gates` (the results of these ops have no relevance as factors).

    The rules of products with weights w, for inputs x and the result z of relevance R, with x w for contributions:

    - epsilon: in proportion to x w, of ``z + epsilon sign(z)``.
    - gamma: in proportion to ``x (w + gamma max(w, 0))``.
    - alpha_beta: `alpha` times the positive contributions' shares less `beta` times the negative ones'; z+ is (1, 0).
    """

    linear: Linear = "epsilon"
    epsilon: float = 1e-9
    gamma: float = 0.25
    alpha: float = 1.0
    beta: float = 0.0
    gates: frozenset[str] = ROOTS

    def table(self, tape: Tape) -> Table:
        """The rules for the ops of a tape."""
        weighted = {"epsilon": self._epsilon, "gamma": self._gamma, "alpha_beta": self._alpha_beta}[self.linear]
        factors = scales(tape, self.gates)
        table = Table(views=gradient, pointwise=identity, otherwise=gradient)
        table.rule(ELEMENTWISE)(identity)
        table.rule(LINEAR + CHOICES + "_to_copy")(gradient)
        table.rule(BILINEAR)(lambda local, given: product(local, given, weighted, factors))
        table.rule("mul")(lambda local, given: product(local, given, gradient, factors))
        table.rule("add sub rsub")(self._epsilon)
        table.rule("_softmax _log_softmax logsumexp")(gradient)
        table.rule("alias detach")(same)
        table.rule("div")(quotient)
        return table

    def _epsilon(self, local: Local, given: Given) -> Tensors:
        (z,), (m,) = local.outputs, given
        assert z is not None and m is not None
        return vjp(local, local.inputs, [m * self._stable(z, z)])

    def _gamma(self, local: Local, given: Given) -> Tensors:
        (z,), (m,) = local.outputs, given
        assert z is not None and m is not None
        more = with_weights(local, lambda w: w + self.gamma * w.clamp_min(0))
        return vjp(more, local.inputs, [m * self._stable(z, more.step.run(local.inputs)[0])])

    def _alpha_beta(self, local: Local, given: Given) -> Tensors:
        positive, negative = self._part(local, given, 1), self._part(local, given, -1)
        return tuple(self.alpha * p - self.beta * n for p, n in zip(positive, negative, strict=True))

    def _part(self, local: Local, given: Given, sign: int) -> Tensors:
        """All relevance in proportion to the contributions of one sign: those of equal, or of opposite signs."""
        (z,), (m,) = local.outputs, given
        assert z is not None and m is not None
        plus, minus = (with_weights(local, lambda w, s=s: (s * w).clamp_min(0) * s) for s in (sign, -sign))
        up, down = (tuple((s * x).clamp_min(0) * s for x in local.inputs) for s in (1, -1))
        zero = tuple(torch.zeros_like(x) for x in local.inputs)
        total = plus.step.run(up)[0] + minus.step.run(down)[0] - minus.step.run(zero)[0]
        shares = [m * self._stable(z, total)]
        pairs = zip(local.inputs, vjp(plus, up, shares), vjp(minus, down, shares), strict=True)
        return tuple(torch.where(x > 0, p, n) for x, p, n in pairs)

    def _stable(self, relevance: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """``relevance / (z + epsilon sign(z))``, 0 where nothing contributes; 1 for infinities, which masks add."""
        ratio = safe_ratio(relevance, z + self.epsilon * torch.where(z < 0, -1.0, 1.0), 0.0)
        return torch.where(z.isfinite(), ratio, 1.0)


def gradient(local: Local, given: Given) -> Tensors:
    """Relevance in proportion to contributions; for a softmax a Taylor expansion at the input (AttnLRP)."""
    return vjp(local, local.inputs, given)


def identity(local: Local, given: Given) -> Tensors:
    """All relevance to the only input; to the inputs of a function of several by their gradients."""
    slopes = vjp(local, local.inputs, given)
    if len(local.inputs) != 1 or local.outputs[0] is None or not local.inputs[0].is_floating_point():
        return slopes
    (x,), y, m = local.inputs, local.number(local.outputs[0]), given[0]
    ratio = m * safe_ratio(y, x, 0.0)
    return (torch.where((x == 0) | ~x.isfinite() | ~y.isfinite(), slopes[0], ratio),)


def product(local: Local, given: Given, weighted: Rule, factors: set[int]) -> Sequence[torch.Tensor]:
    """Equal parts to the factors (AttnLRP), nothing to one that only scales the others, and the rule of weights where
    there is one factor that depends on the points.
    """
    slots = [slot for _, slot in local.step.active]
    if len(slots) == 1:
        return weighted(local, given)
    carrying = [slot not in factors for slot in slots]
    if not any(carrying):
        carrying = [True] * len(slots)
    found = vjp(local, local.inputs, given)
    return [m / sum(carrying) if carries else torch.zeros_like(m) for m, carries in zip(found, carrying, strict=True)]


def quotient(local: Local, given: Given) -> Tensors:
    """All to the numerator: a denominator sets a scale. A constant over something is a function of that."""
    if local.step.active[0][0] != 0:
        return identity(local, given)
    found = vjp(local, local.inputs, given)
    return found[0], *(torch.zeros_like(m) for m in found[1:])


def with_weights(local: Local, change: Callable[[torch.Tensor], torch.Tensor]) -> Local:
    """The op with other constants in the place of its weights and biases."""
    active = {place for place, _ in local.step.active}
    arguments = tuple(
        change(a) if isinstance(a, torch.Tensor) and a.is_floating_point() and place not in active else a
        for place, a in enumerate(local.step.arguments)
    )
    step = Step(local.step.op, arguments, local.step.structure, local.step.active, local.step.outputs)
    return Local(step, local.dtype, local.inputs, local.outputs)


def relevance(value: torch.Tensor | None, multiplier: torch.Tensor | None) -> torch.Tensor | float:
    """The sum of value times multiplier; the infinities and huge numbers of masks, whose multipliers are 0, are left out."""
    if value is None or multiplier is None:
        return 0.0
    value = value.to(multiplier.dtype)
    return (torch.where(value.abs() < torch.finfo(multiplier.dtype).max / 2**20, value, 0.0) * multiplier).sum()


class Absorbed:
    """Sums what an op of `ABSORBING` or one without a rule does not pass on: told of every step of a walk."""

    def __init__(self, table: Table) -> None:
        self.table, self.total = table, torch.zeros(())

    def __call__(self, step: Step, local: Local, given: Given, multipliers: Sequence[torch.Tensor]) -> None:
        if step.name in ABSORBING or self.table.find(step) is None:
            into = sum(map(relevance, local.outputs, given))
            self.total = self.total + into - sum(map(relevance, local.inputs, multipliers))
