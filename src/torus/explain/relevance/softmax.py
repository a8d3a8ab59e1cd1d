"""Softmax and its relatives, with numbers that stay small."""

from __future__ import annotations

import torch

from torus.explain.relevance.discrete import complete
from torus.explain.relevance.local import Local, Tensors, change, of_result


@of_result
def softmax(local: Local, m: torch.Tensor) -> Tensors:
    """The exponential of the log-softmax, whose numbers stay small where those of a quotient of sums do not."""
    (x,), (b,) = local.inputs, local.inputs_b
    dim = local.argument("dim")
    z, z_b = x.log_softmax(dim), b.log_softmax(dim)
    (slope,) = complete((((z + z_b) / 2).exp(),), (change(z, z_b),), z.exp(), z_b.exp())
    m = m * slope
    return (m - _log_sum_exp(x, b, [dim]) * m.sum(dim, keepdim=True),)


@of_result
def log_softmax(local: Local, m: torch.Tensor) -> Tensors:
    """An input less the log-sum-exp."""
    (x,), (b,) = local.inputs, local.inputs_b
    dim = local.argument("dim")
    return (m - _log_sum_exp(x, b, [dim]) * m.sum(dim, keepdim=True),)


@of_result
def log_sum_exp(local: Local, m: torch.Tensor) -> Tensors:
    """See `_log_sum_exp`."""
    (x,), (b,) = local.inputs, local.inputs_b
    dims = local.argument("dim")
    dims = [dims] if isinstance(dims, int) else list(dims)
    weights = _log_sum_exp(x, b, dims)
    return (weights * m.reshape(x.sum(dims, keepdim=True).shape),)


def _log_sum_exp(x: torch.Tensor, b: torch.Tensor, dims: list[int]) -> torch.Tensor:
    """Weights whose products with the changes sum to that of the log-sum-exp: secants of exp and of log, in turn.

    Both are shifted by the largest of all, so that nothing overflows.
    """
    shift = torch.maximum(x.amax(dims, keepdim=True), b.amax(dims, keepdim=True))
    x, b = (t - torch.where(shift.isfinite(), shift, 0.0) for t in (x, b))
    e, e_b = x.exp(), b.exp()
    (inner,) = complete((((x + b) / 2).exp(),), (change(x, b),), e, e_b)
    total, total_b = e.sum(dims, keepdim=True), e_b.sum(dims, keepdim=True)
    log, log_b = x.logsumexp(dims, keepdim=True), b.logsumexp(dims, keepdim=True)
    (outer,) = complete((2 / (total + total_b),), (total - total_b,), log, log_b)
    return inner * outer
