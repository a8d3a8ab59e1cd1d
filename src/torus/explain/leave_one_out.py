"""What the explained number loses without each feature."""

from __future__ import annotations

import torch

from torus.explain.function import Function
from torus.explain.methods import Attribution, Run, of_values
from torus.explain.points import Points


@of_values
def leave_one_out(function: Function, points: Points, baselines: Points, run: Run) -> Attribution:
    """The value at the points, minus the value with one element of them at its baseline, for each element.

    All rows are one call, which `run.chunk` cuts. It promises no sum: what two features do together is in both. A
    function of several numbers a row, (n, m), gives attributions with m at their end.

    Li, Monroe, Jurafsky: Understanding neural networks through representation erasure (2016).
    """
    examples = function.examples
    sizes = [tensor[0].numel() for tensor in points]
    value = function.value(_without_each(points, baselines, sizes)).unflatten(0, (-1, examples))
    lost = (value[:1] - value[1:]).movedim(0, 1).split(sizes, dim=1)
    return Attribution(tuple(part.unflatten(1, tensor.shape[1:]) for part, tensor in zip(lost, points, strict=True)))


def _without_each(points: Points, baselines: Points, sizes: list[int]) -> Points:
    """The points themselves, then without each element in turn: (1 + sum(sizes)) * b rows."""
    first, found = 1, []
    for tensor, baseline, size in zip(points, baselines, sizes, strict=True):
        absent = torch.zeros(1 + sum(sizes), size, dtype=torch.bool)
        absent[torch.arange(first, first + size), torch.arange(size)] = True
        mask = absent.to(tensor.device).reshape(len(absent), 1, *tensor.shape[1:])
        found.append(torch.where(mask, baseline, tensor).flatten(0, 1))
        first += size
    return tuple(found)
