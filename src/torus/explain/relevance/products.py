"""Quotients, products with a scale, and choices: products that are split so that multipliers stay bounded."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torus.explain.relevance.discrete import midpoint, pointwise
from torus.explain.relevance.local import Given, Local, Tensors, of_result, operands, safe_ratio


def quotient(local: Local, given: Given) -> Tensors:
    """``y = u / v`` as the product ``u = y v``, evenly split: ``(du - mean(y) dv) / mean(v)``.

    Its multipliers are bounded by the quotients, while those of ``u (1 / v)`` grow with the ratio of the two v: norms
    of a baseline of 0 have 1e6. Where v changes its sign its mean may be 0, and there it is the other way round.
    """
    if local.step.op._overloadname.endswith("_mode") and local.argument("rounding_mode"):
        return pointwise(local, given)
    if [place for place, _ in local.step.active] == [0]:
        return midpoint(local, given)
    (u, v), (u_b, v_b) = (operands(local, at)[:2] for at in (local.inputs, local.inputs_b))
    same_sign = torch.as_tensor(v * v_b > 0)
    mean = torch.where(same_sign, v + v_b, 2.0) / 2
    reciprocal = torch.where(same_sign, 1 / mean, (1 / v + 1 / v_b) / 2)
    slope = torch.where(same_sign, (u / v + u_b / v_b) / 2 / mean, (u + u_b) / 2 / (v * v_b))
    return _factors_of(local, given, (reciprocal, -slope))


def product(local: Local, given: Given, factors: set[int]) -> Tensors:
    """Evenly split, unless one factor is a reciprocal: then it is a quotient."""
    scaling = [place for place, slot in local.step.active if slot in factors]
    if len(local.inputs) != 2 or len(scaling) != 1:
        return midpoint(local, given)
    ends = [operands(local, at)[:2] for at in (local.inputs, local.inputs_b)]
    (u, s), (u_b, s_b) = (end if scaling[0] == 1 else end[::-1] for end in ends)
    weight = torch.where(s * s_b > 0, safe_ratio(s, s + s_b, 0.5), 0.5)
    slopes = weight * s_b + (1 - weight) * s, weight * u + (1 - weight) * u_b
    return _factors_of(local, given, slopes if scaling[0] == 1 else slopes[::-1])


@of_result
def choice(local: Local, m: torch.Tensor) -> Tensors:
    """``c a + (1 - c) o`` of a condition that is 0 or 1: products again. Comparisons have secants like others."""
    if local.step.active[0][0] != 0:
        return midpoint(local, [m])
    (c, a, o), (c_b, a_b, o_b) = (operands(local, at) for at in (local.inputs, local.inputs_b))
    chosen = (local.number(c) + local.number(c_b)) / 2
    step = torch.where(c == c_b, 0.0, (a + a_b) / 2 - (o + o_b) / 2)
    return _factors_of(local, [m], (step, chosen, 1 - chosen))


def _factors_of(local: Local, given: Given, slopes: Sequence[torch.Tensor]) -> Tensors:
    """Multipliers of the active arguments, from elementwise slopes of all of them."""
    assert given[0] is not None
    places = [place for place, _ in local.step.active]
    return tuple((given[0] * slopes[p]).sum_to_size(t.shape) for p, t in zip(places, local.inputs, strict=True))
