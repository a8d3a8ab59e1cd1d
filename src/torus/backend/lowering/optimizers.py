"""Fused optimizer steps and gradient scaling, each one program over lists of tensors.

The updates are those of torch.optim (Adam: Kingma and Ba, 2015; AdamW: Loshchilov and Hutter, 2019; Adagrad: Duchi
et al., 2011).
Hyperparameters arrive in 64 bits, and what is made of them alone (bias corrections) is computed so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torus.backend.lowering.apply import cast
from torus.backend.lowering.binary import lerp
from torus.backend.lowering.dtypes import OPMATH
from torus.backend.lowering.elementwise import select
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import lowers

Lists = tuple[list[Any], ...]


def _step(
    update: Callable[..., tuple[Any, ...]], columns: Lists, grad_scale: Any, found_inf: Any, *per_item: list[Any]
) -> Lists:
    """Apply `update` to the i-th (parameter, gradient, state...) for each i; nothing changes where `found_inf` is set.

    Gradients are divided by `grad_scale` first, and come back divided, as they do from PyTorch's kernels.
    """
    rows = []
    for row, extra in zip(zip(*columns), zip(*per_item) if per_item else [()] * len(columns[0])):
        work = OPMATH.get(str(row[0].dtype), str(row[0].dtype))
        param, grad, *state = (cast(x, work) for x in row)
        grad = grad if grad_scale is None else grad / cast(grad_scale, work)
        param_new, *state_new = update(param, grad, *state, *extra)
        new = (param_new, grad, *state_new)
        rows.append(new if found_inf is None else _unless(found_inf, row, new))
    return tuple(list(column) for column in zip(*rows)) if rows else tuple([] for _ in columns)


def _unless(found_inf: Any, old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
    skip = found_inf.reshape(()) != 0
    return tuple(select(skip, cast(o, str(n.dtype)), n) for o, n in zip(old, new))


def _like(x: Any, *numbers: Any) -> list[Any]:
    """Numbers (or 0-d tensors) in the dtype of `x`."""
    return [cast(jnp.asarray(n).reshape(()), str(x.dtype)) for n in numbers]


def _decayed(grad: Any, param: Any, weight_decay: Any) -> Any:
    """The gradient of the L2 penalty added, but not where its weight is 0 (the parameter may be infinite)."""
    return grad + select(weight_decay == 0, jnp.zeros((), grad.dtype), weight_decay * param)


# --- SGD


@lowers("aten::_fused_sgd", "aten::_fused_sgd.tensor_lr", wide=True)
def fused_sgd(
    params: list[Any],
    grads: list[Any],
    momentum_buffers: list[Any],
    *,
    weight_decay: Any,
    momentum: Any,
    lr: Any,
    dampening: Any,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Any = None,
    found_inf: Any = None,
) -> Lists:
    """p -= lr * direction, with weight decay, momentum (when there are buffers) and Nesterov's look ahead."""

    def update(param: Any, grad: Any, buffer: Any = None) -> tuple[Any, ...]:
        rate, decay, inertia, gain = _like(param, lr, weight_decay, momentum, 1 - dampening)
        grad = _decayed(-grad if maximize else grad, param, decay)
        if buffer is None:
            return (param - rate * grad,)
        buffer = grad if is_first_step else inertia * buffer + gain * grad
        return param - rate * (grad + inertia * buffer if nesterov else buffer), buffer

    columns = (params, grads, momentum_buffers) if momentum_buffers else (params, grads)
    results = _step(update, columns, grad_scale, found_inf)
    return results if momentum_buffers else (*results, [])


# --- Adam, AdamW


def _fused_adam(decoupled: bool) -> Callable[..., Lists]:
    def rule(
        params: list[Any],
        grads: list[Any],
        exp_avgs: list[Any],
        exp_avg_sqs: list[Any],
        max_exp_avg_sqs: list[Any],
        state_steps: list[Any],
        *,
        lr: Any,
        beta1: Any,
        beta2: Any,
        weight_decay: Any,
        eps: Any,
        amsgrad: bool,
        maximize: bool,
        grad_scale: Any = None,
        found_inf: Any = None,
    ) -> Lists:
        def update(param: Any, grad: Any, mean: Any, square: Any, *rest: Any) -> tuple[Any, ...]:
            *largest, step = rest
            step = cast(step.reshape(()), "float64")
            size, root = _like(param, lr / (1 - beta1**step), lax.sqrt(1 - beta2**step))
            decay, shrink, small = _like(param, weight_decay, 1 - lr * weight_decay, eps)
            new, keep, fresh = _like(param, 1 - beta1, beta2, 1 - beta2)
            grad = -grad if maximize else grad
            if decoupled:
                param = param * shrink
            else:
                grad = _decayed(grad, param, decay)
            mean = lerp(mean, grad, new)
            square = keep * square + fresh * grad * grad
            largest = [jnp.maximum(m, square) for m in largest]
            denominator = lax.sqrt(largest[0] if largest else square) / root + small
            return (param - size * mean / denominator, mean, square, *largest)

        columns = (params, grads, exp_avgs, exp_avg_sqs, *([max_exp_avg_sqs] if amsgrad else []))
        results = _step(update, columns, grad_scale, found_inf, state_steps)
        return results if amsgrad else (*results, list(max_exp_avg_sqs))

    return rule


lowers("aten::_fused_adam", "aten::_fused_adam.tensor_lr", wide=True)(_fused_adam(decoupled=False))
lowers("aten::_fused_adamw", "aten::_fused_adamw.tensor_lr", wide=True)(_fused_adam(decoupled=True))


# --- Adagrad


@lowers("aten::_fused_adagrad.tensor_lr", wide=True)
def fused_adagrad_tensor_lr(
    params: list[Any],
    grads: list[Any],
    state_sums: list[Any],
    state_steps: list[Any],
    *,
    lr: Any,
    lr_decay: Any,
    weight_decay: Any,
    eps: Any,
    maximize: bool,
    grad_scale: Any = None,
    found_inf: Any = None,
) -> Lists:
    """p -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(sum of g * g) + eps)."""

    def update(param: Any, grad: Any, total: Any, step: Any) -> tuple[Any, ...]:
        step = cast(step.reshape(()), "float64")
        rate, decay, small = _like(param, lr / (1 + (step - 1) * lr_decay), weight_decay, eps)
        grad = _decayed(-grad if maximize else grad, param, decay)
        total = total + grad * grad
        return param - rate * grad / (lax.sqrt(total) + small), total

    return _step(update, (params, grads, state_sums), grad_scale, found_inf, state_steps)


@lowers("aten::_fused_adagrad", wide=True)
def fused_adagrad(
    params: list[Any], grads: list[Any], state_sums: list[Any], state_steps: list[Any], **options: Any
) -> Lists:
    """The same; its schema also returns the steps, which the caller has already advanced."""
    return (*fused_adagrad_tensor_lr(params, grads, state_sums, state_steps, **options), list(state_steps))


# --- gradient scaling


@lowers("aten::_amp_foreach_non_finite_check_and_unscale")
def unscale(tensors: list[Any], found_inf: Any, inv_scale: Any) -> tuple[list[Any], Any]:
    """Multiply every gradient by `inv_scale`, and set `found_inf` to 1 if any element is not finite."""
    bad = found_inf.reshape(()) != 0
    results = []
    for x in tensors:
        work = OPMATH.get(str(x.dtype), str(x.dtype))
        bad = bad | ~jnp.all(jnp.isfinite(x))
        scale = cast(inv_scale.reshape(()), work)
        results.append(cast(x, work) * scale)
    return results, select(bad, jnp.ones((), found_inf.dtype), found_inf)


@lowers("aten::_amp_update_scale", runtime=("growth_interval",))
def update_scale(
    scale: Any, growth_tracker: Any, found_inf: Any, growth_factor: Any, backoff_factor: Any, growth_interval: Any
) -> tuple[Any, Any]:
    """Shrink the scale after an overflow; grow it after `growth_interval` clean steps unless that would overflow."""
    factor = _like(scale, growth_factor, backoff_factor)
    overflow = found_inf.reshape(scale.shape) != 0
    clean = growth_tracker + 1
    due = clean == growth_interval
    grown = select(jnp.isfinite(scale * factor[0]), scale * factor[0], scale)
    new_scale = select(overflow, scale * factor[1], select(due, grown, scale))
    return new_scale, select(overflow | due, jnp.zeros_like(growth_tracker), clean).astype(growth_tracker.dtype)
