"""The ATen ops that a function runs, recorded once on real tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from torus.explain.points import Points
from torus.explain.relevance.recorder import Recorder
from torus.explain.relevance.step import Step


@dataclass
class Tape:
    """Steps in the order they ran. Slot `i < inputs` is input `i`; `values` has a tensor for each of the slots."""

    inputs: int
    slots: int
    steps: list[Step] = field(default_factory=list)
    values: list[torch.Tensor] = field(default_factory=list)
    output: int | None = None

    def replay(self, points: Points) -> list[torch.Tensor]:
        """The values of all slots at other points; None for what the output does not depend on.

        Raises RuntimeError where an op does not take its new arguments: the sizes of what follows depend on values.
        """
        values: list[Any] = [*points, *[None] * (self.slots - self.inputs)]
        for step in self.steps:
            results = step.run([values[slot] for _, slot in step.active])
            for slot, result in zip(step.outputs, results, strict=True):
                if slot is not None:
                    values[slot] = result
        return values


def record(function: Callable[[Points], torch.Tensor], points: Points, dtype: torch.dtype | None = None) -> Tape:
    """Run a function at points and keep the steps that its result depends on, in a floating dtype if one is given.

    In-place ops and writes through views become functional ones. What the points do not reach is constant. Gradients
    are on, since PyTorch's modules fuse more ops without; the function gets no leaves, which it could not write to.
    """
    given = tuple(tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in points)
    recorder = Recorder()
    for tensor in given:
        recorder.add(tensor)
    with torch.enable_grad(), _one_op_at_a_time(), recorder:
        result = function(tuple(tensor.clone() for tensor in given))
    tape = Tape(len(points), recorder.slots, recorder.steps, output=recorder.slot(result))
    tape = _without_dead(tape)
    if dtype is not None:
        tape.steps = [step.to(dtype) for step in tape.steps]
        points = converted(points, dtype)
    with torch.no_grad():
        tape.values = tape.replay(points)
    return tape


def converted(points: Points, dtype: torch.dtype | None) -> Points:
    """Floating points in another dtype, None for their own."""
    return points if dtype is None else tuple(t.to(dtype) if t.is_floating_point() else t for t in points)


@contextlib.contextmanager
def _one_op_at_a_time() -> Iterator[None]:
    """Recurrent layers as the ops they are defined by, and not as one of oneDNN."""
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)


def _without_dead(tape: Tape) -> Tape:
    """Only the steps that the output depends on."""
    needed, kept = {tape.output}, []
    for step in reversed(tape.steps):
        if needed.intersection(step.outputs):
            needed.update(slot for _, slot in step.active)
            kept.append(step)
    tape.steps = kept[::-1]
    return tape
