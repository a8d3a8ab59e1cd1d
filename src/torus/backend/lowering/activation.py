"""Activation functions and their gradients, each gradient next to its function.

Formulas and the side on which each boundary falls follow ATen's CPU kernels (Activation.cpp).
"""

from __future__ import annotations

import math
from typing import Any

from torus.backend.lowering.comparison import clamp
from torus.backend.lowering.elementwise import select
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import Bounds, OutSpec, lowers


def _zero(x: Any) -> Any:
    return jnp.zeros((), x.dtype)


def _softplus(x: Any) -> Any:
    """log(1 + exp(x)) without overflow."""
    return jnp.maximum(x, 0) + lax.log1p(lax.exp(-lax.abs(x)))


# --- rectifiers


@lowers("aten::relu", promote="result")
def relu(x: Any) -> Any:
    """The positive part; NaN stays."""
    return jnp.maximum(x, _zero(x))


@lowers("aten::leaky_relu", promote="result")
def leaky_relu(x: Any, negative_slope: Any = 0.01) -> Any:
    """x, scaled below zero."""
    return select(x > 0, x, x * negative_slope)


@lowers("aten::leaky_relu_backward", promote="result")
def leaky_relu_backward(grad: Any, x: Any, negative_slope: Any, self_is_result: bool) -> Any:
    """The sign of the result is that of x, so either serves."""
    return select(x > 0, grad, grad * negative_slope)


@lowers("aten::_prelu_kernel", promote="result")
def prelu(x: Any, weight: Any) -> Any:
    """x, scaled by `weight` below zero."""
    return select(x > 0, x, weight * x)


@lowers("aten::_prelu_kernel_backward", promote="result")
def prelu_backward(grad: Any, x: Any, weight: Any) -> tuple[Any, Any]:
    """The gradients of x and, not yet summed, of the weight."""
    return select(x > 0, grad, weight * grad), select(x > 0, _zero(grad), x * grad)


@lowers("aten::elu", promote="result")
def elu(x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    """scale * x above zero, scale * alpha * (exp(input_scale * x) - 1) below."""
    return select(x < 0, lax.expm1(x * input_scale) * (alpha * scale), x * scale)


@lowers("aten::elu_backward", promote="result")
def elu_backward(grad: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Any) -> Any:
    """The gradient from the input or, when `is_result`, from the output."""
    if is_result:
        below = grad * input_scale * (x + alpha * scale)
    else:
        below = grad * input_scale * (alpha * scale) * lax.exp(x * input_scale)
    return select(x <= 0, below, grad * scale)


@lowers("aten::celu", promote="result")
def celu(x: Any, alpha: Any = 1.0) -> Any:
    """x above zero, alpha * (exp(x / alpha) - 1) below."""
    return elu(x, alpha, jnp.ones_like(alpha), 1 / alpha)


@lowers("aten::hardtanh", promote="result", fits=("min_val", "max_val"))
def hardtanh(x: Any, min_val: Any = -1, max_val: Any = 1) -> Any:
    """x, clamped."""
    return clamp(x, min_val, max_val)


@lowers("aten::hardtanh_backward", promote="result")
def hardtanh_backward(grad: Any, x: Any, min_val: Any, max_val: Any) -> Any:
    """The gradient strictly inside the bounds."""
    return select((x <= min_val) | (x >= max_val), _zero(grad), grad)


# --- gates


@lowers("aten::gelu", promote="result")
def gelu(x: Any, *, approximate: str = "none") -> Any:
    """x * Phi(x), exactly or by the tanh approximation."""
    if approximate == "tanh":
        return 0.5 * x * (1 + lax.tanh(_gelu_inner(x)))
    return 0.5 * x * (1 + lax.erf(x * math.sqrt(0.5)))


@lowers("aten::gelu_backward", promote="result")
def gelu_backward(grad: Any, x: Any, *, approximate: str = "none") -> Any:
    """The derivative of either form."""
    if approximate == "tanh":
        t = lax.tanh(_gelu_inner(x))
        inner = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
        return grad * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner)
    cdf = 0.5 * (1 + lax.erf(x * math.sqrt(0.5)))
    return grad * (cdf + x * lax.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi)))


def _gelu_inner(x: Any) -> Any:
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)


@lowers("aten::silu", promote="result")
def silu(x: Any) -> Any:
    """x * sigmoid(x)."""
    return x / (1 + lax.exp(-x))


@lowers("aten::silu_backward", promote="result")
def silu_backward(grad: Any, x: Any) -> Any:
    """sigmoid(x) * (1 + x * (1 - sigmoid(x)))."""
    s = lax.logistic(x)
    return grad * s * (1 + x * (1 - s))


@lowers("aten::mish", promote="result")
def mish(x: Any) -> Any:
    """x * tanh(softplus(x))."""
    return x * lax.tanh(_softplus(x))


@lowers("aten::mish_backward", promote="result")
def mish_backward(grad: Any, x: Any) -> Any:
    """The derivative of `mish`."""
    t = lax.tanh(_softplus(x))
    return grad * (t + x * lax.logistic(x) * (1 - t * t))


@lowers("aten::hardsigmoid", promote="result")
def hardsigmoid(x: Any) -> Any:
    """relu6(x + 3) / 6."""
    return _relu6(x + 3) / 6


@lowers("aten::hardsigmoid_backward", promote="result")
def hardsigmoid_backward(grad: Any, x: Any) -> Any:
    """1/6 strictly inside (-3, 3)."""
    return select((x > -3) & (x < 3), grad * (1 / 6), _zero(grad))


@lowers("aten::hardswish", promote="result")
def hardswish(x: Any) -> Any:
    """x * relu6(x + 3) / 6."""
    return x * _relu6(x + 3) / 6


@lowers("aten::hardswish_backward", promote="result")
def hardswish_backward(grad: Any, x: Any) -> Any:
    """0 up to -3, 1 from 3 on, x / 3 + 1/2 between."""
    return select(x <= -3, _zero(grad), select(x < 3, grad * (x / 3 + 0.5), grad))


def _relu6(x: Any) -> Any:
    return jnp.minimum(jnp.maximum(x, 0), 6)


@lowers("aten::glu")
def glu(x: Any, dim: int = -1) -> Any:
    """The first half along `dim`, gated by the sigmoid of the second."""
    a, b = _halves(x, dim)
    return a * lax.logistic(b)


@lowers("aten::glu_backward")
def glu_backward(grad: Any, x: Any, dim: int) -> Any:
    """The gradients of both halves, side by side."""
    a, b = _halves(x, dim)
    s = lax.logistic(b)
    grad = grad.astype(a.dtype)
    return jnp.concatenate([grad * s, grad * a * s * (1 - s)], dim)


@lowers("aten::glu_jvp")
def glu_jvp(glu: Any, x: Any, dx: Any, dim: int) -> Any:
    """The derivative of `glu` along `dx`."""
    (a, b), (da, db) = _halves(x, dim), _halves(dx, dim)
    s = lax.logistic(b)
    return da * s + a * s * (1 - s) * db


@lowers("aten::glu_backward_jvp")
def glu_backward_jvp(grad_x: Any, grad_glu: Any, x: Any, dgrad_glu: Any, dx: Any, dim: int) -> Any:
    """The derivative of `glu_backward` along `dx` and `dgrad_glu`."""
    (a, b), (da, db) = _halves(x, dim), _halves(dx, dim)
    s = lax.logistic(b)
    slope = s * (1 - s)
    grad, dgrad = grad_glu.astype(a.dtype), dgrad_glu.astype(a.dtype)
    dslope = slope * (1 - 2 * s) * db
    return jnp.concatenate([dgrad * s + grad * slope * db, (dgrad * a + grad * da) * slope + grad * a * dslope], dim)


def _halves(x: Any, dim: int) -> tuple[Any, Any]:
    wide = x.astype("float32") if x.dtype.itemsize == 2 else x
    a, b = jnp.split(wide, 2, dim)
    return a, b


# --- sigmoids and their logarithms


@lowers("aten::sigmoid_backward", promote="result")
def sigmoid_backward(grad: Any, y: Any) -> Any:
    """grad * y * (1 - y), from the output."""
    return grad * lax.conj((1 - y) * y) if jnp.iscomplexobj(y) else grad * (1 - y) * y


@lowers("aten::tanh_backward", promote="result")
def tanh_backward(grad: Any, y: Any) -> Any:
    """grad * (1 - y * y), from the output."""
    return grad * lax.conj(1 - y * y) if jnp.iscomplexobj(y) else grad * (1 - y * y)


@lowers("aten::logit", promote="result")
def logit(x: Any, eps: Any = None) -> Any:
    """log(x / (1 - x)); with `eps`, x is clamped to [eps, 1 - eps] first."""
    if eps is not None:
        x = select(x < eps, eps, select(x > 1 - eps, 1 - eps, x))
    return lax.log(x / (1 - x))


@lowers("aten::logit_backward", promote="result")
def logit_backward(grad: Any, x: Any, eps: Any = None) -> Any:
    """1 / (x * (1 - x)) inside; outside NaN without `eps` and 0 with it."""
    low = _zero(x) if eps is None else eps
    outside = jnp.asarray(jnp.nan if eps is None else 0, grad.dtype)
    return select((x < low) | (x > 1 - low), outside, grad / (x * (1 - x)))


@lowers("aten::log_sigmoid_forward")
def log_sigmoid(x: Any, *, out: tuple[OutSpec, OutSpec]) -> tuple[Any, Any]:
    """log(sigmoid(x)), and exp(-abs(x)) for the gradient where PyTorch keeps it."""
    wide = x.astype("float32") if x.dtype.itemsize == 2 else x
    z = lax.exp(-lax.abs(wide))
    kept = z if out[1].shape == x.shape else jnp.zeros(out[1].shape, wide.dtype)
    return jnp.minimum(wide, 0) - lax.log1p(z), kept


@lowers("aten::log_sigmoid_backward", promote="result")
def log_sigmoid_backward(grad: Any, x: Any, buffer: Any) -> Any:
    """grad * sigmoid(-x); the buffer is not needed."""
    return grad * lax.logistic(-x)


@lowers("aten::softplus", promote="result")
def softplus(x: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    """log(1 + exp(beta * x)) / beta, x itself above the threshold."""
    scaled = x * beta
    return select(scaled > threshold, x, lax.log1p(lax.exp(scaled)) / beta)


@lowers("aten::softplus_backward", promote="result")
def softplus_backward(grad: Any, x: Any, beta: Any, threshold: Any) -> Any:
    """sigmoid(beta * x), 1 above the threshold."""
    scaled = x * beta
    return select(scaled > threshold, grad, grad * lax.logistic(scaled))


# --- shrinkage


@lowers(
    "aten::softshrink",
    promote="result",
    bounds={"lambd": Bounds("lambda must be greater or equal to 0, but found to be ", 0)},
)
def softshrink(x: Any, lambd: Any = 0.5) -> Any:
    """x pulled towards zero by `lambd`, 0 within it; NaN stays."""
    return select(x > lambd, x - lambd, select(x < -lambd, x + lambd, x * 0))


@lowers("aten::hardshrink", promote="result", fits=("lambd",))
def hardshrink(x: Any, lambd: Any = 0.5) -> Any:
    """0 within `lambd` of zero."""
    return select((x >= -lambd) & (x <= lambd), _zero(x), x)


@lowers("aten::softshrink_backward", "aten::hardshrink_backward", promote="result")
def shrink_backward(grad: Any, x: Any, lambd: Any) -> Any:
    """The gradient outside `lambd` of zero."""
    return select((x >= -lambd) & (x <= lambd), _zero(grad), grad)


# --- randomised


@lowers("aten::rrelu_with_noise_backward", promote="result")
def rrelu_backward(grad: Any, x: Any, noise: Any, lower: Any, upper: Any, training: bool, self_is_result: bool) -> Any:
    """By the slopes that were drawn; outside training by their mean."""
    return grad * noise if training else leaky_relu_backward(grad, x, (lower + upper) / 2, self_is_result)


@lowers("aten::native_dropout_backward", "aten::_masked_scale", promote="result")
def dropout_backward(grad: Any, mask: Any, scale: Any) -> Any:
    """grad * mask * scale."""
    return grad * mask * scale
