"""Elementwise arithmetic of two or three tensors: sums, products, every kind of division, powers, bits, integers.

Formulas follow ATen's CPU kernels (BinaryOpsKernel.cpp, Pow.h), whose corner cases differ from NumPy's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from torus.backend.lowering.apply import cast, check_values
from torus.backend.lowering.dtypes import OPMATH
from torus.backend.lowering.elementwise import (
    aligned,
    copy_sign,
    is_complex,
    is_float,
    is_signed,
    select,
    sqrt_reciprocal,
    trunc,
)
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import OutSpec, lowers

# --- sums and products


@lowers("aten::add.Tensor", "aten::add.Scalar", promote="result", fits=("alpha",))
def add(x: Any, y: Any, alpha: Any = 1) -> Any:
    """x + alpha * y; a logical or for bools."""
    return x | (y & alpha) if x.dtype == bool else x + alpha * y


@lowers("aten::sub.Tensor", "aten::sub.Scalar", fits=("alpha",))
def sub(x: Any, y: Any, alpha: Any = 1, *, out: OutSpec) -> Any:
    """x - alpha * y. Bools are refused, as ATen does before it promotes."""
    if "bool" in (str(x.dtype), str(y.dtype)):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, "
            "use the `~` or `logical_not()` operator instead."
        )
    x, y, alpha = (cast(jnp.asarray(v), OPMATH.get(out.dtype, out.dtype)) for v in (x, y, alpha))
    return x - alpha * y


@lowers("aten::rsub.Tensor", "aten::rsub.Scalar", fits=("alpha",))
def rsub(x: Any, y: Any, alpha: Any, *, out: OutSpec) -> Any:
    """y - alpha * x."""
    return sub(y, x, alpha, out=out)


@lowers("aten::mul.Tensor", "aten::mul.Scalar", promote="result")
def mul(x: Any, y: Any) -> Any:
    """The product; a logical and for bools."""
    return x & y if x.dtype == bool else x * y


@lowers("aten::addcmul", promote="result")
def addcmul(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    """x + value * a * b."""
    return x + value * a * b


@lowers("aten::addcdiv", promote="result")
def addcdiv(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    """x + value * a / b."""
    return x + value * a / b


@lowers("aten::lerp.Scalar", "aten::lerp.Tensor", promote="result")
def lerp(start: Any, end: Any, weight: Any) -> Any:
    """Linear interpolation that hits both ends exactly: the formula changes sides at weight 1/2."""
    low = lax.abs(weight) < 0.5
    return select(low, start + weight * (end - start), end - (end - start) * (1 - weight))


# --- division


@lowers("aten::div.Tensor", "aten::div.Scalar", promote="result")
def div(x: Any, y: Any) -> Any:
    """True division."""
    return x / y


@lowers("aten::div.Tensor_mode", "aten::div.Scalar_mode", promote="result")
def div_mode(x: Any, y: Any, *, rounding_mode: str | None) -> Any:
    """True division, or division rounded towards zero ("trunc") or down ("floor")."""
    if rounding_mode == "floor":
        return floor_divide(x, y)
    if rounding_mode == "trunc":
        return trunc(x / y) if is_float(x) else lax.div(*aligned(x, y))
    return x / y


@lowers("aten::floor_divide", "aten::floor_divide.Scalar", "aten::floor_divide_.Tensor", promote="result")
def floor_divide(x: Any, y: Any) -> Any:
    """Python's ``//``, by way of the exact remainder."""
    x, y = aligned(x, y)
    if not is_float(x):
        quotient = lax.div(x, y)
        return quotient - ((lax.rem(x, y) != 0) & ((x < 0) != (y < 0))).astype(x.dtype) if is_signed(x) else quotient
    rest = lax.rem(x, y)
    quotient = (x - rest) / y
    quotient = select((rest != 0) & ((y < 0) != (rest < 0)), quotient - 1, quotient)
    down = lax.floor(quotient)
    down = select(quotient - down > 0.5, down + 1, down)
    whole = select(quotient != 0, down, copy_sign(jnp.zeros_like(x), x / y))
    return select(y == 0, x / y, whole)


@lowers("aten::remainder.Tensor", "aten::remainder.Scalar", "aten::remainder.Scalar_Tensor", promote="result")
def remainder(x: Any, y: Any) -> Any:
    """The remainder with the sign of the divisor."""
    x, y = aligned(x, y)
    rest = lax.rem(x, y)
    return select((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


@lowers("aten::fmod.Tensor", "aten::fmod.Scalar", promote="result")
def fmod(x: Any, y: Any) -> Any:
    """The remainder with the sign of the dividend, as in C."""
    return lax.rem(*aligned(x, y))


# --- powers


@lowers("aten::pow.Tensor_Tensor", "aten::pow.Scalar", "aten::pow_.Tensor", promote="result")
def power(x: Any, y: Any) -> Any:
    """x ** y."""
    x, y = aligned(x, y)
    if x.dtype == bool:
        return x | ~y
    return lax.pow(x, y) if is_float(x) or is_complex(x) else _integer_power(x, y)


def _integer_power(x: Any, y: Any) -> Any:
    """Square and multiply, modular; a negative exponent gives the truncated reciprocal."""

    def step(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        result, base, left = state
        return select((left & 1) != 0, result * base, result), base * base, left >> 1

    result, _, _ = lax.while_loop(lambda s: jnp.any(s[2] > 0), step, (jnp.ones_like(x), x, y))
    one = jnp.ones((), x.dtype)
    alternating = select((y & 1) != 0, -one, one) if is_signed(x) else one
    reciprocal = select(x == 1, one, select(x == -one, alternating, 0 * one))
    return select(y < 0, reciprocal, result)


POWERS: dict[float, Callable[[Callable[[Any], Any], Any], Any]] = {
    0.0: lambda rounded, x: jnp.ones_like(x),
    1.0: lambda rounded, x: x,
    2.0: lambda rounded, x: x * x,
    3.0: lambda rounded, x: rounded(x * x) * x,
    0.5: lambda rounded, x: lax.sqrt(x),
    -0.5: lambda rounded, x: sqrt_reciprocal(x),
    -1.0: lambda rounded, x: 1 / x,
    -2.0: lambda rounded, x: 1 / rounded(x * x),
}
"""The exponents that ATen treats apart: from what rounds a product to the dtype of the result, and `x`."""


_NEGATIVE_POWER = "Integers to negative integer powers are not allowed."


@lowers("aten::pow.Tensor_Scalar", "aten::pow_.Scalar", promote="result", known={"exponent": tuple(POWERS)})
def power_scalar(x: Any, y: Any, *, out: OutSpec) -> Any:
    """x ** y for one exponent. One that comes at run time is told apart there too, and costs what it should."""
    if not is_float(x):
        if is_signed(x) and not isinstance(y, (int, float)):
            check_values(y < 0, _NEGATIVE_POWER)
        elif is_signed(x) and y < 0:
            raise RuntimeError(_NEGATIVE_POWER)
        return power(x, jnp.asarray(y, x.dtype))

    def rounded(value: Any) -> Any:  # ATen multiplies in the half precision itself, so each product is rounded
        info = jnp.finfo(out.dtype)
        return value if out.dtype == str(x.dtype) else lax.reduce_precision(value, info.nexp, info.nmant)

    if isinstance(y, (int, float)):
        return POWERS[float(y)](rounded, x)
    branches = [functools.partial(branch, rounded) for branch in POWERS.values()]
    hits = y == jnp.asarray(list(POWERS), y.dtype)
    which = jnp.where(jnp.any(hits), jnp.argmax(hits), len(branches)).astype("int32")
    return lax.switch(which, [*branches, lambda x: lax.pow(x, jnp.broadcast_to(y, x.shape))], x)


@lowers("aten::hypot", promote="result")
def hypot(x: Any, y: Any) -> Any:
    """sqrt(x*x + y*y) without overflow; infinite when either is, even beside a NaN."""
    x, y = (lax.abs(a) for a in aligned(x, y))
    high, low = lax.max(x, y), lax.min(x, y)
    ratio = low / select(high == 0, jnp.ones_like(high), high)
    return select((x == jnp.inf) | (y == jnp.inf), jnp.full_like(x, jnp.inf), high * lax.sqrt(1 + ratio * ratio))


@lowers("aten::ldexp.Tensor", promote="result")
def ldexp(x: Any, exponent: Any) -> Any:
    """x * 2**exponent, in two steps so that a power beyond the largest number can still give a finite product."""
    half = trunc(exponent / 2)
    two = jnp.full_like(exponent, 2)
    return x * lax.pow(two, half) * lax.pow(two, exponent - half)


@lowers("aten::logaddexp", promote="result")
def logaddexp(x: Any, y: Any) -> Any:
    """log(exp(x) + exp(y))."""
    if is_complex(x):
        swap = lax.real(x) < lax.real(y)
        return select(swap, y, x) + lax.log1p(lax.exp(select(swap, x - y, y - x)))
    high = jnp.maximum(x, y)
    return select((x == y) & (lax.abs(high) == jnp.inf), high, high + lax.log1p(lax.exp(-lax.abs(x - y))))


@lowers("aten::logaddexp2", promote="result")
def logaddexp2(x: Any, y: Any) -> Any:
    """log2(2**x + 2**y)."""
    if is_complex(x):
        return logaddexp(x * math.log(2), y * math.log(2)) / math.log(2)
    high = jnp.maximum(x, y)
    tail = lax.log1p(lax.exp(-lax.abs(x - y) * math.log(2))) / math.log(2)
    return select((x == y) & (lax.abs(high) == jnp.inf), high, high + tail)


@lowers("aten::xlogy.Tensor", "aten::xlogy.Scalar_Self", "aten::xlogy.Scalar_Other", promote="result")
def xlogy(x: Any, y: Any) -> Any:
    """x * log(y), 0 where x is 0 unless y is NaN."""
    return select((x == 0) & (y == y), jnp.zeros((), x.dtype), x * lax.log(y))


@lowers(
    "aten::special_xlog1py", "aten::special_xlog1py.self_scalar", "aten::special_xlog1py.other_scalar", promote="result"
)
def xlog1py(x: Any, y: Any) -> Any:
    """x * log1p(y), 0 where x is 0 unless y is NaN."""
    return select((x == 0) & (y == y), jnp.zeros((), x.dtype), x * lax.log1p(y))


# --- larger, smaller, signs


def _refuse_complex(name: str, x: Any) -> None:
    if is_complex(x):
        raise RuntimeError(f"{name} not implemented for complex tensors.")


@lowers("aten::maximum", promote="result")
def maximum(x: Any, y: Any) -> Any:
    """The larger; NaN when either is."""
    _refuse_complex("maximum", x)
    return lax.max(*aligned(x, y))


@lowers("aten::minimum", promote="result")
def minimum(x: Any, y: Any) -> Any:
    """The smaller; NaN when either is."""
    _refuse_complex("minimum", x)
    return lax.min(*aligned(x, y))


@lowers("aten::fmax", promote="result")
def fmax(x: Any, y: Any) -> Any:
    """The larger; the other one when one is NaN."""
    _refuse_complex("fmax", x)
    x, y = aligned(x, y)
    return select(x != x, y, select(y != y, x, lax.max(x, y)))


@lowers("aten::fmin", promote="result")
def fmin(x: Any, y: Any) -> Any:
    """The smaller; the other one when one is NaN."""
    _refuse_complex("fmin", x)
    x, y = aligned(x, y)
    return select(x != x, y, select(y != y, x, lax.min(x, y)))


@lowers("aten::atan2", promote="result")
def atan2(y: Any, x: Any) -> Any:
    """The angle of (x, y)."""
    return lax.atan2(*aligned(y, x))


@lowers("aten::copysign.Tensor", "aten::copysign.Scalar", promote="result")
def copysign(x: Any, y: Any) -> Any:
    """The magnitude of x with the sign of y, zeros and NaNs included."""
    return copy_sign(x, y)


@lowers("aten::nextafter")
def nextafter(x: Any, y: Any, *, out: OutSpec) -> Any:
    """The next number after x towards y, in the dtype of the result."""
    return lax.nextafter(*aligned(cast(x, out.dtype), cast(y, out.dtype)))


@lowers("aten::heaviside", promote="result")
def heaviside(x: Any, values: Any) -> Any:
    """0 below zero, 1 above, `values` at zero."""
    return select(x == jnp.zeros((), x.dtype), values, (x > jnp.zeros((), x.dtype)).astype(x.dtype))


# --- bits and integers


@lowers("aten::bitwise_and.Tensor", "aten::bitwise_and.Scalar", "aten::bitwise_and.Scalar_Tensor", promote="result")
def bitwise_and(x: Any, y: Any) -> Any:
    """Bits set in both."""
    return x & y


@lowers("aten::bitwise_or.Tensor", "aten::bitwise_or.Scalar", "aten::bitwise_or.Scalar_Tensor", promote="result")
def bitwise_or(x: Any, y: Any) -> Any:
    """Bits set in either."""
    return x | y


@lowers("aten::bitwise_xor.Tensor", "aten::bitwise_xor.Scalar", "aten::bitwise_xor.Scalar_Tensor", promote="result")
def bitwise_xor(x: Any, y: Any) -> Any:
    """Bits set in one of the two."""
    return x ^ y


@lowers(
    "aten::bitwise_left_shift.Tensor",
    "aten::bitwise_left_shift.Tensor_Scalar",
    "aten::bitwise_left_shift.Scalar_Tensor",
    "aten::__lshift__.Tensor",
    "aten::__lshift__.Scalar",
    "aten::__ilshift__.Tensor",
    "aten::__ilshift__.Scalar",
    promote="result",
)
def left_shift(x: Any, y: Any) -> Any:
    """0 for a shift outside the width, which is also what XLA defines."""
    return lax.shift_left(*aligned(x, y))


@lowers(
    "aten::bitwise_right_shift.Tensor",
    "aten::bitwise_right_shift.Tensor_Scalar",
    "aten::bitwise_right_shift.Scalar_Tensor",
    "aten::__rshift__.Tensor",
    "aten::__rshift__.Scalar",
    "aten::__irshift__.Tensor",
    "aten::__irshift__.Scalar",
    promote="result",
)
def right_shift(x: Any, y: Any) -> Any:
    """Keeps the sign; a shift outside the width leaves only the sign."""
    x, y = aligned(x, y)
    return lax.shift_right_arithmetic(x, y) if is_signed(x) else lax.shift_right_logical(x, y)


@lowers("aten::gcd", promote="result")
def gcd(x: Any, y: Any) -> Any:
    """The greatest common divisor, never negative (but for the smallest integer), by Euclid's algorithm."""
    x, y = aligned(x, y)
    one = jnp.ones((), x.dtype)

    def step(state: tuple[Any, Any]) -> tuple[Any, Any]:
        a, b = state
        go = b != 0
        return select(go, b, a), select(go, lax.rem(a, select(go, b, one)), b)

    result, _ = lax.while_loop(lambda s: jnp.any(s[1] != 0), step, (x, y))
    return lax.abs(result) if is_signed(x) else result


@lowers("aten::lcm", promote="result")
def lcm(x: Any, y: Any) -> Any:
    """The least common multiple, 0 when either is 0."""
    divisor = gcd(x, y)
    product = x // select(divisor == 0, jnp.ones((), x.dtype), divisor) * y
    return lax.abs(product) if is_signed(product) else product
