"""Batch normalization in pieces, as `torch.nn.SyncBatchNorm` calls them: a process has the statistics of its own part,
gathers those of all parts, and normalizes with what they give together.

Parts are put together by the pairwise formula of Chan, Golub and LeVeque (1979), whose sum of squares needs no second
pass: ``M2 = sum(M2_i) + sum(n_i * (mean_i - mean)^2)``.
"""

from __future__ import annotations

from typing import Any

from torus.backend.lowering.apply import cast
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.normalization import all_but, per_channel, updated
from torus.backend.lowering.reductions import count, moments, widen
from torus.backend.lowering.registry import lowers


@lowers("aten::batch_norm_stats")
def batch_norm_stats(x: Any, eps: Any) -> Any:
    """Mean and inverse standard deviation of each channel, in float32 for half precisions."""
    x = widen(x)
    mean, squares, _ = moments(x, all_but(x, 1))
    variance = squares / jnp.asarray(count(x, all_but(x, 1)), x.dtype)
    return mean.reshape(-1), lax.rsqrt(variance + eps.astype(x.dtype)).reshape(-1)


@lowers("aten::batch_norm_elemt")
def batch_norm_elemt(x: Any, weight: Any, bias: Any, mean: Any, invstd: Any, eps: Any) -> Any:
    kind, x = x.dtype, widen(x)
    result = (x - per_channel(mean, x)) * per_channel(invstd, x)
    result = result if weight is None else result * per_channel(weight, x)
    return cast(result if bias is None else result + per_channel(bias, x), str(kind))


@lowers("aten::batch_norm_gather_stats_with_counts", mutates=("running_mean", "running_var"))
def gather_stats_with_counts(
    x: Any, means: Any, invstds: Any, running_mean: Any, running_var: Any, momentum: Any, eps: Any, counts: Any
) -> Any:
    """means, invstds: (parts, channels). counts: (parts,), the elements of a channel in each part."""
    means, invstds = widen(means), widen(invstds)
    numbers = counts.astype(means.dtype).reshape(-1, 1)
    total = jnp.sum(numbers)
    mean = jnp.sum(means * numbers, 0) / total
    squares = jnp.sum(numbers * (1 / (invstds * invstds) - eps.astype(means.dtype) + (means - mean) ** 2), 0)
    invstd = lax.rsqrt(squares / total + eps.astype(means.dtype))
    return mean, invstd, updated(running_mean, mean, momentum), updated(running_var, squares / (total - 1), momentum)


@lowers("aten::batch_norm_gather_stats", mutates=("running_mean", "running_var"))
def gather_stats(
    x: Any, means: Any, invstds: Any, running_mean: Any, running_var: Any, momentum: Any, eps: Any, count: int
) -> Any:
    counts = jnp.full(means.shape[0], count)
    return gather_stats_with_counts(x, means, invstds, running_mean, running_var, momentum, eps, counts)


@lowers("aten::batch_norm_backward_reduce")
def backward_reduce(
    grad: Any, x: Any, mean: Any, invstd: Any, weight: Any, input_g: bool, weight_g: bool, bias_g: bool
) -> Any:
    """Sums of dy and of dy * (x - mean), for the gradient of x; the gradients of weight and bias."""
    grad, x = widen(grad), widen(x)
    axes = all_but(x, 1)
    total = lax.reduce_sum(grad, axes)
    projected = lax.reduce_sum(grad * (x - per_channel(mean, x)), axes)
    kind = str((mean if weight is None else weight).dtype)
    return (
        total if input_g else None,
        projected if input_g else None,
        cast(projected * widen(invstd).astype(x.dtype), kind) if weight_g else None,
        cast(total, kind) if bias_g else None,
    )


@lowers("aten::batch_norm_backward_elemt")
def backward_elemt(
    grad: Any, x: Any, mean: Any, invstd: Any, weight: Any, sum_dy: Any, sum_dy_xmu: Any, counts: Any
) -> Any:
    """The gradient of x from sums over all parts; see `normalization`."""
    kind, grad, x = x.dtype, widen(grad), widen(x)
    total = jnp.sum(counts).astype(x.dtype)
    scale = per_channel(invstd, x)
    projection = (x - per_channel(mean, x)) * scale * scale * per_channel(sum_dy_xmu, x) / total
    result = (grad - per_channel(sum_dy, x) / total - projection) * scale
    return cast(result if weight is None else result * per_channel(weight, x), str(kind))
