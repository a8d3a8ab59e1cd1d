"""Discrete gradients: slopes whose products with the changes of the inputs sum to the change of the result.

Gonzalez: Time integration and discrete Hamiltonian systems (1996), who takes the gradient halfway and the least
addition to it that makes the sum exact.
"""

from __future__ import annotations

import torch

from torus.explain.relevance.local import Given, Local, Tensors, change, of_result, safe_ratio, vjp


def midpoint(local: Local, given: Given) -> Tensors:
    """The gradient halfway: exact for polynomials of degree two, and so splits every product evenly."""
    return vjp(local, local.middle, given)


@of_result
def pointwise(local: Local, m: torch.Tensor) -> Tensors:
    """The gradient halfway, and the least addition to it that makes it complete.

    With one input that is the secant: the Rescale rule.
    """
    result, result_b = local.number(local.result), local.number(local.result_b)
    x, b = (tuple(t.expand(result.shape) for t in at) for at in (local.inputs, local.inputs_b))
    halfway = tuple((s + t) / 2 if s.is_floating_point() else s for s, t in zip(x, b, strict=True))
    ones = [torch.ones_like(result), *[None] * (len(local.outputs) - 1)]
    changes = tuple(map(local.change, x, b))
    slopes = complete(vjp(local, halfway, ones), changes, result, result_b)
    return tuple((m * slope).sum_to_size(tensor.shape) for slope, tensor in zip(slopes, local.inputs, strict=True))


def complete(slopes: Tensors, changes: Tensors, result: torch.Tensor, result_b: torch.Tensor) -> Tensors:
    """Slopes, elementwise, whose products with the changes sum to the change of the result.

    Where what is missing is no more than the rounding of the results, slopes are as they were: a secant of two points
    that are close is less exact than the gradient between them.
    """
    slopes = tuple(torch.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0) for slope in slopes)
    parts = tuple(slope * step for slope, step in zip(slopes, changes, strict=True))
    missing = change(result, result_b) - sum(parts)
    size = result.abs() + result_b.abs() + sum(part.abs() for part in parts)
    missing = torch.where(missing.abs() <= torch.finfo(missing.dtype).eps * size, 0.0, missing)
    longest = torch.stack([step.abs() for step in changes]).amax(0)
    shares = tuple(safe_ratio(step, longest, 0.0) for step in changes)
    length = longest * sum(share * share for share in shares)
    addition = safe_ratio(missing, length, 0.0)
    return tuple(slope + addition * share for slope, share in zip(slopes, shares, strict=True))
