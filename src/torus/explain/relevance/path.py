"""The average gradient of an op between two activations, for smooth functions without a closed form of the change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from torus.explain.relevance.local import Given, Local, Tensors, change, safe_ratio, vjp

NODES = 16
"""Gauss-Legendre nodes on the way between the two activations: exact for polynomials of degree 31."""


def path(local: Local, given: Given) -> Tensors:
    """The average gradient on the straight line between the two activations (Aumann-Shapley values of the op).

    What Gauss-Legendre nodes miss of the change of each element of the result is made good by a factor for it.
    """
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    places = [_on_the_way(local, (1 + float(node)) / 2) for node in nodes]
    shares = [float(weight) / 2 for weight in weights]
    given = [None if m is None else m * f for m, f in zip(given, _factors(local, places, shares), strict=True)]
    found = [vjp(local, place, given) for place in places]
    return tuple(sum(share * part for share, part in zip(shares, parts)) for parts in zip(*found))


def _on_the_way(local: Local, part: float) -> Tensors:
    """Inputs between the baselines (0) and the points (1); integers are those of the nearer end."""
    return tuple(
        b + part * change(x, b) if x.is_floating_point() else (x if part > 0.5 else b)
        for x, b in zip(local.inputs, local.inputs_b, strict=True)
    )


def _factors(local: Local, places: Sequence[Tensors], shares: Sequence[float]) -> list[torch.Tensor | float]:
    """The change of each result over what the nodes give for it; 1 where that is 0 or cannot be had."""
    try:
        found = [_derivative(local, place) for place in places]
    except RuntimeError:  # the op's backward has no derivative
        return [1.0] * len(local.outputs)
    factors: list[torch.Tensor | float] = []
    for result, result_b, parts in zip(local.outputs, local.outputs_b, zip(*found), strict=True):
        if result is None or result_b is None or parts[0] is None:
            factors.append(1.0)
            continue
        factors.append(
            safe_ratio(change(result, result_b), sum(share * part for share, part in zip(shares, parts)), 1.0)
        )
    return [f if isinstance(f, float) else f.clamp(0, 2) for f in factors]


def _derivative(local: Local, place: Tensors) -> list[torch.Tensor | None]:
    """How the results change along the changes of the inputs, to first order at a place."""
    leaves = [t.detach().requires_grad_(t.is_floating_point()) for t in place]
    wanted = [(leaf, step) for leaf, step in zip(leaves, local.changes, strict=True) if leaf.requires_grad]
    with torch.enable_grad():
        results = local.step.run(leaves)
        kept = [isinstance(y, torch.Tensor) and y.requires_grad for y in results]
        chosen = [y for y, keep in zip(results, kept, strict=True) if keep]
        dual = [torch.zeros_like(y, requires_grad=True) for y in chosen]
        if not chosen:
            return [None] * len(results)
        back = torch.autograd.grad(chosen, [t for t, _ in wanted], dual, create_graph=True, materialize_grads=True)
        along = sum(((g * step).sum() for g, (_, step) in zip(back, wanted, strict=True)), torch.zeros(()).to(back[0]))
        found = iter(torch.autograd.grad(along, dual, materialize_grads=True, allow_unused=True))
    return [next(found) if keep else None for keep in kept]
