"""Which tensors of a tape only set the scale of what they multiply, such as the reciprocal deviations of norms."""

from __future__ import annotations

from torus.explain.relevance.step import Step
from torus.explain.relevance.tape import Tape

ROOTS = frozenset({"aten::rsqrt", "aten::sqrt"})
RECIPROCALS = frozenset({"aten::reciprocal", "aten::rsqrt"})


def scales(tape: Tape, gates: frozenset[str]) -> set[int]:
    """Slots that depend on the points through results of these ops alone."""
    found: set[int] = set()
    for step in tape.steps:
        if step.name in gates or _is_root(step) or _all_in(found, step, tape):
            found.update(slot for slot in step.outputs if slot is not None)
    return found


def _all_in(found: set[int], step: Step, tape: Tape) -> bool:
    """Whether all numbers among the inputs are; conditions choose between them and change no scale."""
    numbers = [slot for _, slot in step.active if tape.values[slot].is_floating_point()]
    return bool(numbers) and found.issuperset(numbers)


def _is_root(step: Step) -> bool:
    return step.name == "aten::pow" and step.op._overloadname == "Tensor_Scalar" and step.arguments[1] in (0.5, -0.5)
