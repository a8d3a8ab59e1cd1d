"""Shapley values: all coalitions of few features, or sampled permutations of many."""

from __future__ import annotations

import math

import torch

from torus.explain.coalitions.convergence import not_converged, relative_error, worst
from torus.explain.coalitions.game import Game
from torus.explain.coalitions.segments import Given
from torus.explain.function import Function
from torus.explain.methods import Attribution, Run, of_values
from torus.explain.moments import Moments
from torus.explain.points import Points

MOST = 20
"""Features of which all coalitions are still taken."""


@of_values
def exact_shapley(
    function: Function, points: Points, baselines: Points, run: Run, *, segments: Given = None
) -> Attribution:
    """Shapley values from all 2^m coalitions of m features. Raises ValueError for more than 20.

    Shapley: A value for n-person games (1953).
    """
    game = Game(function, points, baselines, run, segments)
    if game.features > MOST:
        raise ValueError(
            f"{game.features} features have 2^{game.features} coalitions; at most {MOST} features are taken exactly. "
            "Give segments, or take shapley_sampling or kernel_shap"
        )
    return _exact(game)


@of_values
def shapley_sampling(
    function: Function,
    points: Points,
    baselines: Points,
    run: Run,
    *,
    segments: Given = None,
    permutations: int = 64,
    antithetic: bool = True,
) -> Attribution:
    """Shapley values from random permutations of the features, until the standard error is under the tolerance.

    At most `permutations` are drawn; where all coalitions cost no more, those are taken. Attributions sum to what they
    should whatever is drawn. With `antithetic`, each permutation is also walked backwards.

    Castro, Gomez, Tejada: Polynomial calculation of the Shapley value based on sampling (2009). Mitchell, Cooper,
    Frank, Holmes: Sampling permutations for Shapley value estimation (2022).
    """
    if permutations < 1:
        raise ValueError(f"at least 1 permutation is needed, not {permutations}")
    game = Game(function, points, baselines, run, segments)
    if game.features <= MOST and 2**game.features <= permutations * (game.features - 1) + 2:
        return _exact(game)
    none, everything = ends = game.ends()
    change = everything - none
    moments: Moments | None = None
    generator, history = run.generator(), []
    unit = 2 if antithetic else 1
    units = max(1, permutations // unit)
    a_round = min(units, max(4, math.ceil(game.size / (unit * (game.features - 1)))))
    error = torch.full_like(change, torch.inf)
    while moments is None or (moments.count < units and worst(error) > run.tolerance):
        left = units if moments is None else units - moments.count
        orders = _orders(min(a_round, left), game.features, antithetic, generator)
        drawn = Moments.of(_contributions(game, orders, ends).unflatten(0, (-1, unit)).mean(1))
        moments = drawn if moments is None else moments.joined(drawn)
        error = relative_error(moments.standard_error.T, change)
        history.append((moments.count * unit * (game.features - 1), worst(error)))
        run.progress(moments.count * unit, units * unit)
    return game.attribution(
        moments.mean.T,
        expected=change,
        standard_error=moments.standard_error.T,
        error=error,
        verdict=not_converged(error, run.tolerance, moments.count * unit, "permutations"),
        history=tuple(history),
    )


def _exact(game: Game) -> Attribution:
    """Each feature's gain, over all coalitions of the others, weighted by 1 / (m * binomial(m - 1, size))."""
    m = game.features
    bits = 2 ** torch.arange(m)
    values = game.values(2**m, lambda rows: (rows[:, None] & bits) != 0)
    sizes = ((torch.arange(2**m)[:, None] & bits) != 0).sum(1)
    weights = torch.tensor([1 / (m * math.comb(m - 1, size)) for size in range(m)], dtype=torch.float64)
    found = []
    for bit in bits.tolist():
        without = torch.arange(2**m).reshape(-1, 2, bit)[:, 0].flatten()
        found.append((weights[sizes[without]][:, None] * (values[without + bit] - values[without])).sum(0))
    change = values[-1] - values[0]
    return game.attribution(torch.stack(found, 1), expected=change, error=torch.zeros_like(change))


def _orders(units: int, features: int, antithetic: bool, generator: torch.Generator) -> torch.Tensor:
    """Permutations, one a row; with `antithetic`, each is followed by its reverse."""
    orders = torch.stack([torch.randperm(features, generator=generator) for _ in range(units)])
    return torch.stack((orders, orders.flip(1)), 1).flatten(0, 1) if antithetic else orders


def _contributions(game: Game, orders: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """What each feature adds when it joins in these orders (k, m): shape (k, m, b)."""
    inner = game.features - 1
    rank = orders.argsort(1)
    none, everything = ends[:, None, None].expand(-1, len(orders), -1, -1)
    walked = game.values(len(orders) * inner, lambda rows: rank[rows // inner] <= (rows % inner)[:, None])
    walk = torch.cat((none, walked.reshape(len(orders), inner, -1), everything), 1)
    gains = walk.diff(dim=1)
    return gains.gather(1, rank[:, :, None].expand_as(gains))
