"""Results that are elements of what came in: maxima, pools, sorting."""

from __future__ import annotations

from collections.abc import Callable

import torch

from torus.explain.relevance.local import Local, Tensors, of_result, operands, pull, safe_ratio


@of_result
def pool(local: Local, m: torch.Tensor) -> Tensors:
    """Maxima of windows, overlapping or not, by the indices of their winners."""
    x, b = local.inputs[0], local.inputs_b[0]
    spatial = 3 if "3d" in local.step.name else 2

    def flat(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.flatten(-spatial)

    i, j = map(flat, local.chosen())
    chosen = _winners(flat(x), flat(b), i, j, -1)
    return (pull(lambda t: chosen(flat(t)), x, flat(m)),)


@of_result
def extreme(local: Local, m: torch.Tensor) -> Tensors:
    """Maxima and minima over whole dimensions."""
    x, b = local.number(local.inputs[0]), local.number(local.inputs_b[0])
    over = local.argument("dim") if any(a.name == "dim" for a in local.step.op._schema.arguments) else None
    dims = sorted(d % x.ndim for d in ([over] if isinstance(over, int) else over or range(x.ndim))) if x.ndim else []
    if not dims:
        return (m,)

    def flat(t: torch.Tensor) -> torch.Tensor:
        return t.movedim(dims, tuple(range(-len(dims), 0))).flatten(-len(dims))

    best = torch.argmax if local.step.name.split("::")[1] in ("amax", "any", "max") else torch.argmin
    chosen = _winners(flat(x), flat(b), best(flat(x), -1, keepdim=True), best(flat(b), -1, keepdim=True), -1)
    return (pull(lambda t: chosen(flat(t)).reshape(m.shape), x, m),)


@of_result
def running_extreme(local: Local, m: torch.Tensor) -> Tensors:
    """Maxima of all that came before."""
    (x,), (b,) = local.inputs, local.inputs_b
    return (pull(_winners(x, b, *local.chosen(), local.argument("dim")), x, m),)


@of_result
def larger(local: Local, m: torch.Tensor) -> Tensors:
    """The larger, or smaller, of two."""
    best = torch.argmax if local.step.name.endswith("max") or local.step.name.endswith("maximum") else torch.argmin
    x, b = (
        torch.stack(torch.broadcast_tensors(*map(local.number, operands(local, at))), -1)
        for at in (local.inputs, local.inputs_b)
    )
    i, j = best(x, -1, keepdim=True), best(b, -1, keepdim=True)
    multiplier = pull(lambda t: _winners(x, b, i, j, -1)(t)[..., 0], x, m)
    places = [place for place, _ in local.step.active]
    return tuple(multiplier[..., p].sum_to_size(t.shape) for p, t in zip(places, local.inputs, strict=True))


@of_result
def ordered(local: Local, m: torch.Tensor) -> Tensors:
    """Values by rank: half to the element of that rank at either end, and what is missing to all by their change."""
    (x,), (b,) = local.inputs, local.inputs_b
    dim = local.argument("dim") % x.ndim
    reduced = m.ndim < x.ndim
    m, y, y_b, i, j = (t.unsqueeze(dim) if reduced else t for t in (m, local.result, local.result_b, *local.chosen()))
    step = x - b
    halves = (step.gather(dim, i) + step.gather(dim, j)) / 2
    missing = (m * (y - y_b - halves)).sum(dim, keepdim=True)
    longest = step.abs().amax(dim, keepdim=True)
    share = safe_ratio(step, longest, 0.0)
    addition = safe_ratio(missing, longest * (share * share).sum(dim, keepdim=True), 0.0)
    return (pull(lambda t: (t.gather(dim, i) + t.gather(dim, j)) / 2, x, m) + addition * share,)


def _winners(
    x: torch.Tensor, b: torch.Tensor, i: torch.Tensor, j: torch.Tensor, dim: int
) -> Callable[[torch.Tensor], torch.Tensor]:
    """The mean of what stands at `i` and `j` in a dimension, as a linear function."""
    weight = _first_wins(x.gather(dim, i), x.gather(dim, j), b.gather(dim, i), b.gather(dim, j))
    return lambda t: weight * t.gather(dim, i) + (1 - weight) * t.gather(dim, j)


def _first_wins(x_i: torch.Tensor, x_j: torch.Tensor, b_i: torch.Tensor, b_j: torch.Tensor) -> torch.Tensor:
    """The weight of the winner `i` at the points against `j`, the one at the baselines; `j` has the rest.

    The change of a maximum lies between the changes of the two, so that it is their mean with a weight in [0, 1]: the
    part of the straight way on which the larger of the two is `i`. No third element is needed, and a window that
    overlaps another has no part in it.
    """
    return safe_ratio(x_i - x_j, (x_i - x_j) + (b_j - b_i), 0.5)
