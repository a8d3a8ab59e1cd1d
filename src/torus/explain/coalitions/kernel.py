"""Shapley values as a weighted regression over coalitions."""

from __future__ import annotations

from typing import NamedTuple

import torch

from torus.explain.coalitions.convergence import not_converged, relative_error, worst
from torus.explain.coalitions.game import Game
from torus.explain.coalitions.segments import Given
from torus.explain.coalitions.strata import SAMPLINGS, Stratum, allocate, strata
from torus.explain.function import Function
from torus.explain.methods import Attribution, Run, of_values
from torus.explain.points import Points


class Solution(NamedTuple):
    """Features' numbers and standard errors, (b, m)."""

    found: torch.Tensor
    standard_error: torch.Tensor


@of_values
def kernel_shap(
    function: Function,
    points: Points,
    baselines: Points,
    run: Run,
    *,
    segments: Given = None,
    samples: int | None = None,
    sampling: str = "leverage",
    paired: bool = True,
) -> Attribution:
    """Shapley values from a regression over at most `samples` coalitions, until the error is under the tolerance.

    Coalitions are drawn without replacement, each with its complement where `paired`; the numbers of each size follow
    the leverage scores of the regression, or the Shapley kernel with ``sampling="kernel"``. Attributions sum to what
    they should whatever is drawn, and are exact once all coalitions are. `samples` is 2 m + 2048 if not given.
    Raises ValueError where `samples` are too few to determine m features.

    Lundberg, Lee: A unified approach to interpreting model predictions (2017). Covert, Lee: Improving KernelSHAP
    (2021). Musco, Witter: Provably accurate Shapley value estimation via leverage score sampling (2024).
    """
    game = Game(function, points, baselines, run, segments)
    m = game.features
    samples = 2 * m + 2048 if samples is None else samples
    if sampling not in SAMPLINGS:
        raise ValueError(f"sampling is one of {', '.join(SAMPLINGS)}, not {sampling!r}")
    if samples < 2 * (m - 1):
        raise ValueError(f"{m} features need at least {2 * (m - 1)} coalitions, and samples is {samples}")
    ends = game.ends()
    change = ends[1] - ends[0]
    if m == 1:
        return game.attribution(change[:, None], expected=change, error=torch.zeros_like(change))
    unit = 2 if paired else 1
    layers = strata(m, paired, run.generator())
    known = [torch.empty(0, unit, game.points[0].shape[0], dtype=torch.float64)] * len(layers)
    history = []
    for units in _rounds(samples // unit, 2 * m + 32):
        counts = allocate(layers, units, sampling)
        known = _extended(game, layers, known, counts, paired)
        solution = _solve(layers, known, ends, paired)
        error = relative_error(solution.standard_error, change)
        history.append((unit * sum(counts), worst(error)))
        run.progress(unit * units, samples)
        if worst(error) <= run.tolerance:
            break
    return game.attribution(
        solution.found,
        expected=change,
        standard_error=solution.standard_error,
        error=error,
        verdict=not_converged(error, run.tolerance, history[-1][0], "coalitions"),
        history=tuple(history),
    )


def _rounds(most: int, first: int) -> list[int]:
    """Doubled from round to round, up to `most`."""
    found = [min(first, most)]
    while found[-1] < most:
        found.append(min(2 * found[-1], most))
    return found


def _extended(
    game: Game, layers: list[Stratum], known: list[torch.Tensor], counts: list[int], paired: bool
) -> list[torch.Tensor]:
    """The values of each stratum's first coalitions (and their complements), (count, 1 or 2, b); only new ones run."""
    fresh = [layer.take(count)[len(old) :] for layer, old, count in zip(layers, known, counts, strict=True)]
    masks = torch.cat(fresh)
    if len(masks) == 0:
        return known
    both = torch.stack((masks, ~masks), 1) if paired else masks[:, None]
    values = game.values_of(both.flatten(0, 1)).unflatten(0, both.shape[:2])
    return [torch.cat(pair) for pair in zip(known, values.split([len(part) for part in fresh]), strict=True)]


def _solve(layers: list[Stratum], known: list[torch.Tensor], ends: torch.Tensor, paired: bool) -> Solution:
    """Least squares under the constraint that features sum to the change, and a jackknife (HC3) standard error.

    With ``x = z - size / m`` for a coalition z, the constraint is that the solution is the change / m plus something
    orthogonal to ones; a coalition and its complement have opposite x, so a pair is one row. Strata that are complete
    have no sampling error.
    """
    m = layers[0].features
    masks = torch.cat([layer.take(len(values)) for layer, values in zip(layers, known, strict=True)]).double()
    counts = torch.tensor([len(values) for values in known])
    weights = torch.tensor([s.mass for s in layers], dtype=torch.float64).div(counts).repeat_interleave(counts)
    sampled = torch.tensor(
        [1 - len(values) / s.population for s, values in zip(layers, known, strict=True)], dtype=torch.float64
    ).repeat_interleave(counts)
    share = masks.mean(1, keepdim=True)
    x = masks - share
    none, everything = ends
    change = everything - none
    values = torch.cat(known)
    if paired:
        y = (values[:, 0] - values[:, 1] - (2 * share - 1) * change) / 2
    else:
        y = values[:, 0] - none - share * change
    weighted = x * weights[:, None]
    inverse = torch.linalg.pinv(x.T @ weighted, hermitian=True)
    solver = inverse @ weighted.T  # (m, n)
    found = solver @ y
    found = found - found.mean(0)
    leverage = (x * solver.T).sum(1)
    residual = (y - x @ found) / (1 - leverage).clamp_min(1e-9)[:, None]
    variance = solver.square() @ (residual.square() * sampled[:, None])
    return Solution((found + change / m).T, variance.sqrt().T)
