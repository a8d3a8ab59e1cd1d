"""A linear model of the function near the inputs, over coalitions."""

from __future__ import annotations

import torch

from torus.explain.coalitions.game import Game
from torus.explain.coalitions.segments import Given
from torus.explain.function import Function
from torus.explain.methods import Attribution, Run, of_values
from torus.explain.points import Points


@of_values
def lime(
    function: Function,
    points: Points,
    baselines: Points,
    run: Run,
    *,
    segments: Given = None,
    samples: int = 1024,
    width: float = 0.25,
    ridge: float = 1e-3,
) -> Attribution:
    """Coefficients of a ridge regression over `samples` random coalitions, near ones first.

    A coalition of s of m features has the weight ``exp(-d**2 / width**2)`` at the cosine distance
    ``d = 1 - sqrt(s / m)``; the inputs themselves are one of them. `ridge` is relative to the mean weight.

    Ribeiro, Singh, Guestrin: Why should I trust you? Explaining the predictions of any classifier (2016).
    """
    game = Game(function, points, baselines, run, segments)
    if samples < 2:
        raise ValueError(f"at least 2 coalitions are needed, not {samples}")
    masks = torch.rand(samples, game.features, generator=run.generator()) < 0.5
    masks[0] = True
    values = game.values_of(masks)
    z = masks.double()
    weights = (-((1 - z.mean(1).sqrt()) / width).square()).exp()
    weights = weights / weights.sum()
    centred = z - weights @ z
    weighted = centred.T * weights
    penalty = ridge * torch.eye(game.features, dtype=torch.float64)
    found = torch.linalg.solve(weighted @ centred + penalty, weighted @ (values - weights @ values))
    return game.attribution(found.T)
