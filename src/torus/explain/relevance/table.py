"""A table of rules: what an ATen op does with the multipliers of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from torus.explain.relevance.local import Given, Local
from torus.explain.relevance.rules import INDEXED
from torus.explain.relevance.step import Step

Rule = Callable[[Local, Given], Sequence[torch.Tensor]]
"""From an op and a multiplier for each result to a multiplier for each active input, with its shape."""


class Table:
    """One entry an op; `views` and `pointwise` serve the ops that PyTorch itself declares to be such and `otherwise` what
    is left, which the walk names.
    """

    def __init__(self, *, views: Rule, pointwise: Rule, otherwise: Rule) -> None:
        self.views, self.pointwise, self.otherwise = views, pointwise, otherwise
        self.rules: dict[str, Rule] = {}

    def rule(self, names: str) -> Callable[[Rule], Rule]:
        """Enter a rule for ops, given as in ``"mul mm"``."""

        def enter(rule: Rule) -> Rule:
            self.rules.update({f"aten::{name}": rule for name in names.split()})
            return rule

        return enter

    def changed(self, names: str, rule: Rule) -> Table:
        """A table with another rule for some ops."""
        table = Table(views=self.views, pointwise=self.pointwise, otherwise=self.otherwise)
        table.rules = {**self.rules, **{f"aten::{name}": rule for name in names.split()}}
        return table

    def find(self, step: Step) -> Rule | None:
        """The rule of an op; None where there is only `otherwise`."""
        if step.name in INDEXED and any(not _continuous(step.arguments[place]) for place, _ in step.active):
            return None
        if step.name in self.rules:
            return self.rules[step.name]
        if step.op.is_view:
            return self.views
        return self.pointwise if torch.Tag.pointwise in step.op.tags else None


def _continuous(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
