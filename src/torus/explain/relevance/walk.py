"""From the output of a tape back to its inputs, by the rules of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from torus.explain.relevance.local import Local
from torus.explain.relevance.step import Step
from torus.explain.relevance.table import Table
from torus.explain.relevance.tape import Tape

Seen = Callable[[Step, Local, Sequence[torch.Tensor | None], Sequence[torch.Tensor]], None]


@dataclass
class Walk:
    """`without_rule` collects the ops that the table has no rule for, with their overloads."""

    table: Table
    without_rule: list[str] = field(default_factory=list)

    def back(
        self, tape: Tape, seed: torch.Tensor, base: list[torch.Tensor] | None = None, seen: Seen | None = None
    ) -> tuple[torch.Tensor, ...]:
        """Multipliers of the inputs, each with its shape, from a multiplier (n,) of the output.

        `base` has the values of the slots at the baselines; `seen` is told of every step.
        """
        found: dict[int, torch.Tensor] = {} if tape.output is None else {tape.output: seed}
        for step in reversed(tape.steps):
            given = [None if slot is None else found.get(slot) for slot in step.outputs]
            if all(multiplier is None for multiplier in given):
                continue
            local = _local(step, tape.values, base, seed.dtype)
            multipliers = self._rule(step)(local, given)
            if seen is not None:
                seen(step, local, given, multipliers)
            for (_, slot), multiplier in zip(step.active, multipliers, strict=True):
                found[slot] = found[slot] + multiplier if slot in found else multiplier
        return tuple(found.get(slot, torch.zeros_like(tape.values[slot])) for slot in range(tape.inputs))

    def _rule(self, step: Step):  # type: ignore[no-untyped-def]
        rule = self.table.find(step)
        if rule is None and str(step.op) not in self.without_rule:
            self.without_rule.append(str(step.op))
        return rule or self.table.otherwise


def _local(step: Step, values: list[torch.Tensor], base: list[torch.Tensor] | None, dtype: torch.dtype) -> Local:
    def of(where: list[torch.Tensor]) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor | None, ...]]:
        inputs = tuple(where[slot] for _, slot in step.active)
        return inputs, tuple(None if slot is None else where[slot] for slot in step.outputs)

    return Local(step, dtype, *of(values), *(of(base) if base is not None else ((), ())))
