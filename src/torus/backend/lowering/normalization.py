"""Batch, layer, group, RMS and weight normalization, with gradients.

Statistics take two passes and are computed in float32 for half precisions. With n the size of what is normalized,
``xhat = (x - mean) * rstd`` and ``dy`` the gradient scaled by the weight, the gradient of x is
``rstd * (dy - mean(dy) - xhat * mean(dy * xhat))``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torus.backend.lowering.apply import cast
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.reductions import axis_of, count, moments, norm_over, widen
from torus.backend.lowering.registry import OutSpec, lowers


def _widen(x: Any, dtype: Any) -> Any:
    return None if x is None else cast(x, str(dtype))


def _scale_shift(xhat: Any, weight: Any, bias: Any) -> Any:
    if weight is not None:
        xhat = xhat * weight
    return xhat if bias is None else xhat + bias


def _input_gradient(scaled: Any, xhat: Any, rstd: Any, axes: Sequence[int]) -> Any:
    """The gradient of what was normalized over `axes`; see the module docstring."""
    number = jnp.asarray(count(xhat, axes), xhat.dtype)
    mean = jnp.sum(scaled, axes, keepdims=True) / number
    projection = jnp.sum(scaled * xhat, axes, keepdims=True) / number
    return rstd * (scaled - mean - xhat * projection)


# Layer normalization


@lowers("aten::native_layer_norm")
def layer_norm(
    x: Any, normalized_shape: Sequence[int], weight: Any, bias: Any, eps: Any, *, out: tuple[OutSpec, ...]
) -> Any:
    x = widen(x)
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    mean, squares, centred = moments(x, axes)
    number = jnp.asarray(count(x, axes), x.dtype)
    rstd = lax.rsqrt(squares / number + eps.astype(x.dtype))
    result = _scale_shift(centred * rstd, _widen(weight, x.dtype), _widen(bias, x.dtype))
    return result, mean.reshape(out[1].shape), rstd.reshape(out[2].shape)


@lowers("aten::native_layer_norm_backward")
def layer_norm_backward(
    grad: Any,
    x: Any,
    normalized_shape: Sequence[int],
    mean: Any,
    rstd: Any,
    weight: Any,
    bias: Any,
    output_mask: Sequence[bool],
) -> Any:
    grad, x = widen(grad), widen(x)
    mean, rstd = _widen(mean, x.dtype), _widen(rstd, x.dtype)
    outer = tuple(range(x.ndim - len(normalized_shape)))
    inner = tuple(range(len(outer), x.ndim))
    kept = x.shape[: len(outer)] + (1,) * len(inner)
    rstd = rstd.reshape(kept)
    xhat = (x - mean.reshape(kept)) * rstd
    scaled = grad if weight is None else grad * _widen(weight, x.dtype)
    return (
        _input_gradient(scaled, xhat, rstd, inner) if output_mask[0] else None,
        lax.reduce_sum(grad * xhat, outer) if output_mask[1] else None,
        lax.reduce_sum(grad, outer) if output_mask[2] else None,
    )


# RMS normalization


@lowers("aten::_fused_rms_norm")
def rms_norm(x: Any, normalized_shape: Sequence[int], weight: Any, eps: Any, *, out: tuple[OutSpec, OutSpec]) -> Any:
    x = widen(x)
    epsilon = jnp.finfo(x.dtype).eps if eps is None else eps  # of float32 for half precisions, as on the CPU
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    number = jnp.asarray(count(x, axes), x.dtype)
    rstd = lax.rsqrt(jnp.sum(x * x, axes, keepdims=True) / number + jnp.asarray(epsilon, x.dtype))
    return _scale_shift(x * rstd, _widen(weight, x.dtype), None), rstd.reshape(out[1].shape)


@lowers("aten::_fused_rms_norm_backward")
def rms_norm_backward(
    grad: Any, x: Any, normalized_shape: Sequence[int], rstd: Any, weight: Any, output_mask: Sequence[bool]
) -> Any:
    grad, x = widen(grad), widen(x)
    outer = tuple(range(x.ndim - len(normalized_shape)))
    inner = tuple(range(len(outer), x.ndim))
    rstd = _widen(rstd, x.dtype).reshape(x.shape[: len(outer)] + (1,) * len(inner))
    xhat = x * rstd
    scaled = grad if weight is None else grad * _widen(weight, x.dtype)
    number = jnp.asarray(count(x, inner), x.dtype)
    projection = jnp.sum(scaled * xhat, inner, keepdims=True) / number
    return (
        rstd * (scaled - xhat * projection) if output_mask[0] else None,
        lax.reduce_sum(grad * xhat, outer) if output_mask[1] else None,
    )


# Batch normalization


def all_but(x: Any, axis: int) -> tuple[int, ...]:
    return tuple(a for a in range(x.ndim) if a != axis)


def per_channel(value: Any, x: Any) -> Any:
    """A vector of C values, shaped to meet (N, C, ...) in the dtype of `x`."""
    return None if value is None else cast(value, str(x.dtype)).reshape([1, -1] + [1] * (x.ndim - 2))


def updated(running: Any, value: Any, momentum: Any) -> Any:
    """The running statistic after one step; None stays None."""
    if running is None:
        return None
    momentum = momentum.astype(value.dtype)
    return cast((1 - momentum) * widen(running).astype(value.dtype) + momentum * value, str(running.dtype))


def _batch_statistics(x: Any, running_mean: Any, running_var: Any, momentum: Any) -> tuple[Any, ...]:
    """Mean, variance and deviations of each channel, dimensions kept; new running mean and (unbiased) variance."""
    number = count(x, all_but(x, 1))
    mean, squares, centred = moments(x, all_but(x, 1))
    unbiased = squares / jnp.asarray(number - 1, x.dtype)
    new_mean = updated(running_mean, mean.reshape(-1), momentum)
    new_var = updated(running_var, unbiased.reshape(-1), momentum)
    return mean, squares / jnp.asarray(number, x.dtype), centred, new_mean, new_var


def _batch_norm(
    x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: Any, eps: Any
) -> tuple[Any, ...]:
    """Output, mean and inverse deviation that were used, new running mean and variance."""
    x = widen(x)
    if training:
        mean, variance, centred, new_mean, new_var = _batch_statistics(x, running_mean, running_var, momentum)
    else:
        mean, variance = per_channel(running_mean, x), per_channel(running_var, x)
        centred, new_mean, new_var = x - mean, running_mean, running_var
    invstd = lax.rsqrt(variance + eps.astype(x.dtype))
    result = _scale_shift(centred * invstd, per_channel(weight, x), per_channel(bias, x))
    return result, mean.reshape(-1), invstd.reshape(-1), new_mean, new_var


@lowers("aten::_native_batch_norm_legit_functional")
@lowers("aten::native_batch_norm", mutates=("running_mean", "running_var"))
def batch_norm(
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: Any,
    eps: Any,
    *,
    out: tuple[OutSpec, ...],
) -> Any:
    results = _batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps)
    return (results[0], *_fitted(results[1:3], out[1:3]), *results[3:])


@lowers("aten::_native_batch_norm_legit", mutates=("running_mean", "running_var"))
def batch_norm_legit(
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: Any,
    eps: Any,
    *,
    out: tuple[OutSpec, ...],
) -> Any:
    """Where no meta kernel says: the result has the dtype of `x`, the statistics that of the parameters."""
    result, *saved, mean, variance = _batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps)
    saved = _fitted(saved, out[1:3]) if out else [v if training else v[:0] for v in saved]
    given = next((v for v in (weight, bias, running_mean, running_var) if v is not None), x)
    return (cast(result, str(x.dtype)), *(cast(v, str(given.dtype)) for v in saved), mean, variance)


@lowers("aten::_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(x: Any, weight: Any, bias: Any, training: bool, momentum: Any, eps: Any) -> Any:
    return _batch_norm(x, weight, bias, None, None, True, momentum, eps)[:3]


@lowers("aten::_native_batch_norm_legit_no_training")
def batch_norm_no_training(
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    momentum: Any,
    eps: Any,
    *,
    out: tuple[OutSpec, ...],
) -> Any:
    result, mean, invstd, _, _ = _batch_norm(x, weight, bias, running_mean, running_var, False, momentum, eps)
    return (result, *_fitted((mean, invstd), out[1:]))


def _fitted(statistics: Sequence[Any], outs: Sequence[OutSpec]) -> list[Any]:
    """Evaluation saves none, which compiled graphs do not know: they have one for each channel."""
    return [s if tuple(s.shape) == tuple(o.shape) else s[: o.shape[0]] for s, o in zip(statistics, outs)]


@lowers("aten::_batch_norm_with_update_functional")
@lowers("aten::_batch_norm_with_update", mutates=("running_mean", "running_var"))
def batch_norm_with_update(
    x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: Any, eps: Any
) -> Any:
    results = _batch_norm(x, weight, bias, running_mean, running_var, True, momentum, eps)
    return (*results[:3], jnp.zeros(0, "uint8"), *results[3:])


@lowers("aten::batch_norm_update_stats", mutates=("running_mean", "running_var"))
def batch_norm_update_stats(x: Any, running_mean: Any, running_var: Any, momentum: Any) -> Any:
    mean, variance, _, new_mean, new_var = _batch_statistics(widen(x), running_mean, running_var, momentum)
    return mean.reshape(-1), variance.reshape(-1), new_mean, new_var


@lowers("aten::_batch_norm_no_update")
def batch_norm_no_update(
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    momentum: Any,
    eps: Any,
    *,
    out: tuple[OutSpec, ...],
) -> Any:
    training = running_mean is None or running_var is None
    result, mean, invstd, _, _ = _batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps)
    return (result, *_fitted((mean, invstd), out[1:3]), jnp.zeros(0, "uint8"))


def _batch_norm_backward(
    grad: Any, x: Any, weight: Any, mean: Any, invstd: Any, train: bool, output_mask: Sequence[bool]
) -> tuple[Any, Any, Any]:
    axes = all_but(x, 1)
    xhat = (x - mean) * invstd
    scaled = grad if weight is None else grad * per_channel(weight, x)
    if not output_mask[0]:
        grad_x = None
    else:
        grad_x = _input_gradient(scaled, xhat, invstd, axes) if train else scaled * invstd
    return (
        grad_x,
        lax.reduce_sum(grad * xhat, axes) if output_mask[1] else None,
        lax.reduce_sum(grad, axes) if output_mask[2] else None,
    )


@lowers("aten::native_batch_norm_backward")
def batch_norm_backward(
    grad: Any,
    x: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_invstd: Any,
    train: bool,
    eps: Any,
    output_mask: Sequence[bool],
) -> Any:
    grad, x = widen(grad), widen(x)
    if train:
        mean, invstd = per_channel(save_mean, x), per_channel(save_invstd, x)
    else:
        mean = per_channel(running_mean, x)
        invstd = lax.rsqrt(per_channel(running_var, x) + eps.astype(x.dtype))
    return _batch_norm_backward(grad, x, weight, mean, invstd, train, output_mask)


@lowers("aten::batch_norm_backward")
def batch_norm_backward_with_reserve(
    grad: Any,
    x: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_var: Any,
    update: bool,
    eps: Any,
    output_mask: Sequence[bool],
    reserve: Any,
) -> Any:
    return batch_norm_backward(
        grad, x, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask
    )


# Group normalization


@lowers("aten::native_group_norm")
def group_norm(x: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: Any) -> Any:
    shape = x.shape
    x = widen(x).reshape(N, group, C * HxW // group)
    mean, squares, centred = moments(x, (2,))
    rstd = lax.rsqrt(squares / jnp.asarray(x.shape[2], x.dtype) + eps.astype(x.dtype))
    xhat = (centred * rstd).reshape(shape)
    result = _scale_shift(xhat, per_channel(weight, xhat), per_channel(bias, xhat))
    return result, mean.reshape(N, group), rstd.reshape(N, group)


@lowers("aten::native_group_norm_backward")
def group_norm_backward(
    grad: Any,
    x: Any,
    mean: Any,
    rstd: Any,
    weight: Any,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> Any:
    shape = x.shape
    grad, x = widen(grad).reshape(N, C, HxW), widen(x).reshape(N, group, C * HxW // group)
    mean, rstd = (_widen(s, x.dtype).reshape(N, group, 1) for s in (mean, rstd))
    xhat = (x - mean) * rstd
    scaled = grad if weight is None else grad * per_channel(weight, grad)
    grad_x = _input_gradient(scaled.reshape(x.shape), xhat, rstd, (2,)).reshape(shape) if output_mask[0] else None
    return (
        grad_x,
        lax.reduce_sum(grad * xhat.reshape(grad.shape), (0, 2)) if output_mask[1] else None,
        lax.reduce_sum(grad, (0, 2)) if output_mask[2] else None,
    )


# Weight normalization


@lowers("aten::_weight_norm_interface")
def weight_norm(v: Any, g: Any, dim: int = 0) -> Any:
    wide = widen(v)
    norm = jnp.expand_dims(norm_over(wide, 2, all_but(v, axis_of(dim, v.ndim))), all_but(v, axis_of(dim, v.ndim)))
    return wide * (widen(g) / norm), norm


@lowers("aten::_weight_norm_interface_backward")
def weight_norm_backward(grad: Any, v: Any, g: Any, norms: Any, dim: int) -> Any:
    grad, v, g = widen(grad), widen(v), widen(g)
    norms = _widen(norms, v.dtype)
    along = jnp.sum(grad * v, all_but(v, axis_of(dim, v.ndim)), keepdims=True)
    return g / norms * (grad - v * along / (norms * norms)), along / norms
