"""How faithful attributions are and how steady: measured on the model, without a reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torus.explain.coalitions.game import BATCH, Game, in_batches
from torus.explain.coalitions.segments import Given
from torus.explain.function import Function
from torus.explain.methods import Attribution, Method, Run
from torus.explain.points import Points, each, repeat, repeat_argument, rows


class Widened:
    """A function of the same rows, seen as one of `times` as many examples."""

    def __init__(self, function: Function, times: int) -> None:
        self.function, self.times = function, times

    @property
    def examples(self) -> int:
        return self.function.examples * self.times

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)


def quality(
    method: Method,
    function: Function,
    points: Points,
    baselines: Points,
    found: Attribution,
    run: Run,
    options: Mapping[str, Any],
) -> dict[str, float | None]:
    """What the certificate says of both metrics; no sensitivity where points are integers."""
    unfaithful = infidelity(function, points, baselines, found, run, segments=options.get("segments"))
    numbers = all(point.dtype.is_floating_point for point in points)
    unsteady = sensitivity(method, function, points, baselines, found, run, options=options) if numbers else None
    return {
        "infidelity": float(unfaithful.max()),
        "sensitivity": None if unsteady is None else float(unsteady.max()),
    }


def infidelity(
    function: Function,
    points: Points,
    baselines: Points,
    found: Attribution,
    run: Run,
    *,
    segments: Given = None,
    samples: int = 128,
) -> torch.Tensor:
    """How badly attributions predict the change when random features go to their baseline, (b,): 0 is perfectly.

    The mean square of what they miss, relative to that of the change itself, so that attributions of zero have 1. Those
    that promise no sum are scaled first, to what fits best. Every share of removed features is as likely.

    Yeh, Hsieh, Suggala, Inouye, Ravikumar: On the (in)fidelity and sensitivity of explanations (2019).
    """
    game = Game(function, points, baselines, run, segments)
    generator = run.generator()
    share = torch.rand(samples, 1, generator=generator)
    removed = torch.rand(samples, game.features, generator=generator) < share
    removed[torch.arange(samples), torch.randint(game.features, (samples,), generator=generator)] = True
    changes = game.ends()[1] - game.values_of(~removed)
    predicted = removed.double() @ game.segments.gather(found.attributions).T
    if found.expected is None:
        predicted = predicted * _ratio((predicted * changes).sum(0), predicted.square().sum(0))
    return _ratio((predicted - changes).square().sum(0), changes.square().sum(0))


def sensitivity(
    method: Method,
    function: Function,
    points: Points,
    baselines: Points,
    found: Attribution,
    run: Run,
    *,
    options: Mapping[str, Any],
    radius: float = 0.02,
    samples: int = 8,
) -> torch.Tensor:
    """The largest relative change of the attributions under small noise in the points, (b,).

    The noise is uniform, up to `radius` of the largest element of an example; `samples` noisy copies are explained as
    so many more examples at once. Raises ValueError where no point is a number that noise can be added to.

    Yeh, Hsieh, Suggala, Inouye, Ravikumar: On the (in)fidelity and sensitivity of explanations (2019).
    """
    if not all(point.dtype.is_floating_point for point in points):
        raise ValueError("sensitivity adds noise to the inputs, and they are integers: explain a layer in their place")
    generator = run.generator()
    noisy = each(lambda point: _noisy(point, radius, samples, generator), points)
    wide = {name: _wide(value, points, samples) for name, value in options.items()}
    again = method(Widened(function, samples), noisy, repeat(baselines, samples), run, **wide)
    there = _flat(found.attributions)
    distance = (_flat(again.attributions).unflatten(0, (samples, -1)) - there).norm(dim=2).amax(0)
    return _ratio(distance, there.norm(dim=1))


def curves(
    function: Function,
    points: Points,
    baselines: Points,
    found: Attribution,
    run: Run,
    *,
    segments: Given = None,
    steps: int = 32,
) -> dict[str, torch.Tensor]:
    """The value while features go, or come, from the largest attribution to the smallest.

    ``"deletion"`` and ``"insertion"``, (b, steps + 1): from the inputs to the baselines, and back. Their means are the
    areas under the curves: a good attribution has a small one and a large one.

    Petsiuk, Das, Saenko: RISE: Randomized input sampling for explanation of black-box models (2018).
    """
    game = Game(function, points, baselines, run, segments)
    order = game.segments.gather(found.attributions).argsort(dim=1, descending=True, stable=True)
    rank = order.argsort(1)
    gone = (torch.arange(steps + 1) * game.features / steps).round().long()

    def values(deleting: bool) -> torch.Tensor:
        def make(indices: torch.Tensor) -> Points:
            first = rank[None] < gone[indices][:, None, None]
            keep = ~first if deleting else first
            return game.segments.choose_each(keep.to(points[0].device), points, baselines)

        return in_batches(function, points, steps + 1, run.chunk or BATCH, make).T

    return {"deletion": values(True), "insertion": values(False)}


def _noisy(point: torch.Tensor, radius: float, samples: int, generator: torch.Generator) -> torch.Tensor:
    noise = 2 * torch.rand(samples, *point.shape, generator=generator) - 1
    largest = point.abs().flatten(1).amax(1).reshape(-1, *[1] * (point.ndim - 1))
    return (point + noise.to(point) * radius * largest).flatten(0, 1)


def _wide(value: Any, points: Points, samples: int) -> Any:
    """An option for more examples: tensors of the points' rank with a row for each."""
    if isinstance(value, torch.Tensor) and value.ndim == points[0].ndim:
        return repeat_argument(value, rows(points), samples)
    return type(value)(_wide(item, points, samples) for item in value) if isinstance(value, list | tuple) else value


def _flat(points: Points) -> torch.Tensor:
    """Everything of a row, (n, elements), in float64 on the host."""
    return torch.cat([point.detach().cpu().double().flatten(1) for point in points], 1)


def _ratio(part: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """0 where both are 0."""
    return torch.where(part == 0, 0.0, part / whole)
