"""Losses, pairwise distances, and their gradients. `reduction` is 0 (none), 1 (mean) or 2 (sum)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torus.backend.lowering.apply import check_bounds
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.reductions import widen
from torus.backend.lowering.registry import Bounds, OutSpec, lowers

MEAN, SUM = 1, 2


def _number(value: Any, like: Any) -> Any:
    return jnp.asarray(value, like.dtype)


def _reduce(loss: Any, reduction: int) -> Any:
    if reduction == MEAN:
        return jnp.sum(loss) / _number(loss.size, loss)
    return jnp.sum(loss) if reduction == SUM else loss


def _spread(grad: Any, size: int, reduction: int) -> Any:
    """The gradient of each term of the loss."""
    return grad / _number(size, grad) if reduction == MEAN else grad


def _terms(*tensors: Any) -> tuple[int, ...]:
    return jnp.broadcast_shapes(*(t.shape for t in tensors))


# Differences


@lowers("aten::mse_loss", promote="result")
def mse_loss(x: Any, target: Any, reduction: int = MEAN) -> Any:
    difference = x - target
    return _reduce(difference * difference, reduction)


@lowers("aten::mse_loss_backward", promote="result")
def mse_loss_backward(grad: Any, x: Any, target: Any, reduction: int) -> Any:
    return 2 * (x - target) * _spread(grad, math.prod(_terms(x, target)), reduction)


_BETA = {"beta": Bounds("smooth_l1_loss does not support negative values for beta.", 0)}
_DELTA = {"delta": Bounds("huber_loss does not support non-positive values for delta.", 0, open=True)}


@lowers("aten::smooth_l1_loss", promote="result", bounds=_BETA)
def smooth_l1_loss(x: Any, target: Any, reduction: int = MEAN, beta: Any = 1.0) -> Any:
    distance = lax.abs(x - target)
    return _reduce(jnp.where(distance < beta, distance * distance / (2 * beta), distance - beta / 2), reduction)


@lowers("aten::smooth_l1_loss_backward", promote="result")
def smooth_l1_loss_backward(grad: Any, x: Any, target: Any, reduction: int, beta: Any) -> Any:
    difference = x - target
    slope = jnp.where(lax.abs(difference) < beta, difference / beta, jnp.sign(difference))
    return slope * _spread(grad, difference.size, reduction)


@lowers("aten::huber_loss", promote="result", bounds=_DELTA)
def huber_loss(x: Any, target: Any, reduction: int = MEAN, delta: Any = 1.0) -> Any:
    distance = lax.abs(x - target)
    return _reduce(jnp.where(distance < delta, distance * distance / 2, delta * (distance - delta / 2)), reduction)


@lowers("aten::huber_loss_backward", promote="result")
def huber_loss_backward(grad: Any, x: Any, target: Any, reduction: int, delta: Any) -> Any:
    difference = x - target
    return jnp.clip(difference, -delta, delta) * _spread(grad, difference.size, reduction)


@lowers("aten::soft_margin_loss", promote="result")
def soft_margin_loss(x: Any, target: Any, reduction: int = MEAN) -> Any:
    return _reduce(lax.log1p(lax.exp(-target * x)), reduction)


@lowers("aten::soft_margin_loss_backward", promote="result")
def soft_margin_loss_backward(grad: Any, x: Any, target: Any, reduction: int) -> Any:
    z = lax.exp(-target * x)
    return -target * z / (z + 1) * _spread(grad, math.prod(_terms(x, target)), reduction)


# Cross entropy


@lowers("aten::binary_cross_entropy", promote="result")
def binary_cross_entropy(x: Any, target: Any, weight: Any = None, reduction: int = MEAN) -> Any:
    floor = _number(-100.0, x)
    terms = (target - 1) * jnp.maximum(lax.log1p(-x), floor) - target * jnp.maximum(lax.log(x), floor)
    return _reduce(terms if weight is None else terms * weight, reduction)


@lowers("aten::binary_cross_entropy_backward", promote="result")
def binary_cross_entropy_backward(grad: Any, x: Any, target: Any, weight: Any = None, reduction: int = MEAN) -> Any:
    slope = (x - target) / jnp.maximum((1 - x) * x, _number(1e-12, x))
    slope = slope if weight is None else slope * weight
    return slope * _spread(grad, x.size, reduction)


@lowers("aten::binary_cross_entropy_with_logits", promote="result")
def binary_cross_entropy_with_logits(
    x: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = MEAN
) -> Any:
    softplus = jnp.maximum(-x, _number(0, x)) + lax.log1p(lax.exp(-lax.abs(x)))
    scale = 1 if pos_weight is None else (pos_weight - 1) * target + 1
    terms = (1 - target) * x + scale * softplus
    return _reduce(terms if weight is None else terms * weight, reduction)


def _class_first(x: Any, target: Any) -> tuple[Any, Any]:
    """Give a single sample its batch dimension."""
    return (x[None], target.reshape(1)) if x.ndim == 1 else (x, target)


def _class_weights(x: Any, target: Any, weight: Any, ignore_index: int) -> tuple[Any, Any]:
    """Safe class indices with the class axis kept, and the weight of each sample (0 where it is ignored)."""
    ignored = target == ignore_index
    wanted = jnp.where(ignored, jnp.zeros((), target.dtype), target)
    check_bounds(wanted, x.shape[1], 1, "Target", lower=0)
    index = jnp.clip(wanted, 0, x.shape[1] - 1)
    each = jnp.ones(target.shape, x.dtype) if weight is None else widen(weight).astype(x.dtype)[index]
    return jnp.expand_dims(index, 1), jnp.where(ignored, jnp.zeros((), x.dtype), each)


@lowers("aten::nll_loss_forward", "aten::nll_loss2d_forward")
def nll_loss(
    x: Any, target: Any, weight: Any, reduction: int, ignore_index: int, *, out: tuple[OutSpec, OutSpec]
) -> Any:
    x, target = _class_first(widen(x), target)
    index, each = _class_weights(x, target, weight, ignore_index)
    picked = jnp.take_along_axis(x, index, 1, mode="clip").squeeze(1)
    # An ignored sample counts nothing even where its log-probability is not finite.
    terms = jnp.where(target == ignore_index, jnp.zeros((), x.dtype), -picked * each)
    if reduction not in (MEAN, SUM):
        return terms.reshape(out[0].shape), jnp.zeros((), x.dtype)
    total, loss = jnp.sum(each), jnp.sum(terms)
    return (loss / total if reduction == MEAN else loss), total


@lowers("aten::nll_loss_backward", "aten::nll_loss2d_backward")
def nll_loss_backward(
    grad: Any,
    x: Any,
    target: Any,
    weight: Any,
    reduction: int,
    ignore_index: int,
    total_weight: Any,
    *,
    out: OutSpec,
) -> Any:
    x, target = _class_first(widen(x), target)
    index, each = _class_weights(x, target, weight, ignore_index)
    grad = widen(grad) / widen(total_weight) if reduction == MEAN else widen(grad)
    grad = grad.reshape(target.shape) if reduction not in (MEAN, SUM) else grad
    terms = jnp.where(target == ignore_index, jnp.zeros((), x.dtype), -each * grad)
    classes = lax.broadcasted_iota(index.dtype, x.shape, 1)
    spread = jnp.where(classes == index, jnp.expand_dims(terms, 1), jnp.zeros((), x.dtype))
    return spread.reshape(out.shape)


# Margins


def _rows(x: Any, target: Any) -> tuple[Any, Any]:
    return (x.reshape(1, x.size), target.reshape(1, target.size)) if x.ndim < 2 else (x, target)


def _margins(x: Any, target: Any, margin: Any) -> tuple[Any, Any, Any]:
    """max(0, margin - x[target] + x) with zero at the target; the target's one-hot mask; safe targets."""
    check_bounds(target, x.shape[1], 1, "Target", lower=0)
    index = jnp.clip(target, 0, x.shape[1] - 1)
    own = jnp.take_along_axis(x, index[:, None], 1)
    hot = lax.broadcasted_iota(index.dtype, x.shape, 1) == index[:, None]
    zero = jnp.zeros((), x.dtype)
    return jnp.where(hot, zero, jnp.maximum(margin - own + x, zero)), hot, index


@lowers("aten::multi_margin_loss", static=("p",))
def multi_margin_loss(
    x: Any, target: Any, p: int = 1, margin: Any = 1, weight: Any = None, reduction: int = MEAN, *, out: OutSpec
) -> Any:
    x = widen(x).reshape(1, -1) if x.ndim < 2 else widen(x)
    gaps, _, index = _margins(x, target.reshape(-1), _number(margin, x))
    gaps = gaps if p == 1 else gaps * gaps
    gaps = gaps if weight is None else gaps * widen(weight)[index][:, None]
    return _reduce(jnp.sum(gaps, 1) / _number(x.shape[1], x), reduction).reshape(out.shape)


@lowers("aten::multi_margin_loss_backward", static=("p",))
def multi_margin_loss_backward(
    grad: Any, x: Any, target: Any, p: int, margin: Any, weight: Any = None, reduction: int = MEAN
) -> Any:
    shape, dtype = x.shape, x.dtype
    x = widen(x).reshape(1, -1) if x.ndim < 2 else widen(x)
    gaps, hot, index = _margins(x, target.reshape(-1), _number(margin, x))
    slope = (gaps > 0).astype(x.dtype) if p == 1 else 2 * gaps
    slope = slope if weight is None else slope * widen(weight)[index][:, None]
    slope = jnp.where(hot, -jnp.sum(slope, 1, keepdims=True), slope) / _number(x.shape[1], x)
    grad = _spread(widen(grad), x.shape[0], reduction)
    return (slope * (grad.reshape(-1, 1) if grad.ndim else grad)).reshape(shape).astype(dtype)


def _label_sets(x: Any, target: Any) -> tuple[Any, Any]:
    """Which positions of `target` hold a label (those before the first -1), and the mask of labelled classes."""
    valid = lax.cumprod((target >= 0).astype("int32"), 1).astype("bool")
    check_bounds(jnp.where(valid, target, 0), x.shape[1], 1, "Target", lower=0)
    classes = lax.iota(target.dtype, x.shape[1])
    return valid, jnp.any((target[:, :, None] == classes) & valid[:, :, None], 1)


def _label_gaps(x: Any, target: Any, valid: Any, labelled: Any) -> Any:
    """max(0, 1 - x[label] + x[other]) for each label (axis 1) and each class that is no label (axis 2)."""
    own = jnp.take_along_axis(x, jnp.clip(target, 0, x.shape[1] - 1), 1)
    gaps = jnp.maximum(1 - own[:, :, None] + x[:, None, :], jnp.zeros((), x.dtype))
    return jnp.where(valid[:, :, None] & ~labelled[:, None, :], gaps, jnp.zeros((), x.dtype))


@lowers("aten::multilabel_margin_loss_forward")
def multilabel_margin_loss(x: Any, target: Any, reduction: int, *, out: tuple[OutSpec, OutSpec]) -> Any:
    x, target = _rows(widen(x), target)
    valid, labelled = _label_sets(x, target)
    terms = jnp.sum(_label_gaps(x, target, valid, labelled), (1, 2)) / _number(x.shape[1], x)
    return _reduce(terms, reduction).reshape(out[0].shape), labelled.reshape(out[1].shape)


@lowers("aten::multilabel_margin_loss_backward")
def multilabel_margin_loss_backward(grad: Any, x: Any, target: Any, reduction: int, is_target: Any) -> Any:
    shape, dtype = x.shape, x.dtype
    x, target = _rows(widen(x), target)
    valid, labelled = _label_sets(x, target)
    active = (_label_gaps(x, target, valid, labelled) > 0).astype(x.dtype)
    pull = jnp.where(valid, jnp.sum(active, 2), jnp.zeros((), x.dtype))
    hot = (target[:, :, None] == lax.iota(target.dtype, x.shape[1])).astype(x.dtype)
    slope = (jnp.sum(active, 1) - jnp.sum(pull[:, :, None] * hot, 1)) / _number(x.shape[1], x)
    grad = _spread(widen(grad), x.shape[0], reduction)
    return (slope * (grad.reshape(-1, 1) if grad.ndim else grad)).reshape(shape).astype(dtype)


# Pairwise distances


def _distance(difference: Any, p: float) -> Any:
    """The `p`-norm over the last axis."""
    size = lax.abs(difference)
    if p == 0:
        return jnp.sum((size != 0).astype(size.dtype), -1)
    if math.isinf(p):
        return jnp.max(size, -1, initial=0)
    if p == 1:
        return jnp.sum(size, -1)
    if p == 2:
        return lax.sqrt(jnp.sum(size * size, -1))
    power = _number(p, size)
    return lax.pow(jnp.sum(lax.pow(size, power), -1), 1 / power)


def _distance_slope(difference: Any, p: float, distance: Any) -> Any:
    """Derivative of `_distance` by the difference; 0 where the distance is 0."""
    distance = distance[..., None]
    size, sign = lax.abs(difference), jnp.sign(difference)
    zero = jnp.zeros((), difference.dtype)
    if p == 0:
        return jnp.zeros_like(difference)
    if p == 1:
        return sign
    if math.isinf(p):
        return jnp.where(size == distance, sign, zero)
    safe = jnp.where(distance == 0, _number(1, distance), distance)
    if p == 2:
        return jnp.where(distance == 0, zero, difference / safe)
    nonzero = jnp.where(size == 0, _number(1, size), size)
    slope = sign * lax.pow(nonzero / safe, _number(p - 1, size))
    return jnp.where((distance == 0) | (size == 0), zero, slope)


@lowers("aten::_cdist_forward", static=("p",))
def cdist(x: Any, y: Any, p: float, compute_mode: int | None) -> Any:
    return _distance(widen(x)[..., :, None, :] - widen(y)[..., None, :, :], p)


@lowers("aten::_euclidean_dist")
def euclidean_dist(x: Any, y: Any) -> Any:
    return cdist(x, y, 2.0, None)


@lowers("aten::_cdist_backward", static=("p",))
def cdist_backward(grad: Any, x: Any, y: Any, p: float, distance: Any) -> Any:
    if 0 in (*grad.shape, *x.shape):
        return jnp.zeros_like(x)  # also where a batch of none would make it larger
    difference = widen(x)[..., :, None, :] - widen(y)[..., None, :, :]
    return jnp.sum(widen(grad)[..., None] * _distance_slope(difference, p, widen(distance)), -2)


def _pairs(rows: int) -> Sequence[Any]:
    return jnp.triu_indices(rows, 1)


@lowers("aten::_pdist_forward", static=("p",))
def pdist(x: Any, p: float = 2.0) -> Any:
    first, second = _pairs(x.shape[0])
    return _distance(widen(x)[first] - widen(x)[second], p)


@lowers("aten::_pdist_backward", static=("p",))
def pdist_backward(grad: Any, x: Any, p: float, distance: Any) -> Any:
    first, second = _pairs(x.shape[0])
    x = widen(x)
    slope = widen(grad)[:, None] * _distance_slope(x[first] - x[second], p, widen(distance))
    return jnp.zeros_like(x).at[first].add(slope).at[second].add(-slope)
