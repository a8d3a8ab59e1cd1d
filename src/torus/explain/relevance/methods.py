"""DeepLIFT and relevance propagation as methods."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torus.explain.function import Differentiable, Function
from torus.explain.methods import Attribution, Run
from torus.explain.points import Points, each, total
from torus.explain.relevance.deeplift import DEEPLIFT
from torus.explain.relevance.local import change
from torus.explain.relevance.tape import record
from torus.explain.relevance.walk import Walk


def deeplift(
    function: Function,
    points: Points,
    baselines: Points,
    run: Run,
    *,
    references: torch.Tensor | Sequence[torch.Tensor] | None = None,
) -> Attribution:
    """Changes from the baselines times multipliers that are passed back op by op, summing to the change of the target.

    Shrikumar, Greenside, Kundaje: Learning important features through propagating activation differences (2017).
    `references` (k, ...), in the place of the baselines, are compared with every example one by one and the results
    averaged, as by Lundberg and Lee: A unified approach to interpreting model predictions (2017). The rules are in
    `torus.explain.relevance.deeplift`; ops without one are named, and the verdict names them if the sum is missed.
    """
    program = _DeepLift(Walk(DEEPLIFT))
    compared = [baselines] if references is None else _each_reference(references, points)
    found: list[Points] = []
    for done, base in enumerate(compared):
        found.append(function.apply(program, (*points, *base)))
        run.progress(done + 1, len(compared))
    *attributions, expected = (sum(parts) / len(found) for parts in zip(*found, strict=True))
    names = tuple(program.walk.without_rule)
    return Attribution(
        tuple(attributions), expected, without_rule=names, verdict=_verdict(names, tuple(attributions), expected, run)
    )


class _DeepLift:
    """From the points and the baselines to the attributions and the change that they should sum to."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk

    def __call__(self, function: Differentiable, both: Points) -> Points:
        count = len(both) // 2
        points, baselines = both[:count], both[count:]
        tape = record(function, points)
        if tape.output is None:
            return (*each(torch.zeros_like, points), torch.zeros_like(total(points)))
        base = tape.replay(baselines)
        multipliers = self.walk.back(tape, torch.ones_like(tape.values[tape.output]), base)
        return (
            *each(lambda m, x, b: m * change(x, b), multipliers, points, baselines),
            change(tape.values[tape.output], base[tape.output]),
        )


def _each_reference(references: torch.Tensor | Sequence[torch.Tensor], points: Points) -> list[Points]:
    given = (references,) if isinstance(references, torch.Tensor) else tuple(references)
    if len(given) != len(points) or any(r.shape[1:] != x.shape[1:] for r, x in zip(given, points, strict=False)):
        raise ValueError(
            f"references of shapes {[tuple(r.shape) for r in given]} do not fit inputs of shapes "
            f"{[tuple(x.shape) for x in points]}: each has any number of rows, and rows like the input's"
        )
    return [each(lambda r, x: r[k].to(x).expand_as(x), given, points) for k in range(len(given[0]))]


def _verdict(names: tuple[str, ...], attributions: Points, expected: torch.Tensor, run: Run) -> str:
    """A sum that is missed is put down to the ops without a rule."""
    if not names:
        return ""
    missed = (total(attributions) - expected).abs() > run.tolerance * expected.abs()
    if not bool(missed.any()):
        return ""
    return f"the attributions do not sum to the change of the target; there is no rule for {', '.join(names)}"
