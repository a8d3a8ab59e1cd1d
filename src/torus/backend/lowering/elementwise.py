"""Elementwise functions of one tensor: exponentials, trigonometry, rounding, signs, classification of floats.

Formulas follow ATen's CPU kernels; special functions are in `special`, activations in `activation`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torus.backend.lowering.apply import cast
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import OutSpec, lowers

# --- helpers shared by the elementwise families


def is_float(x: Any) -> bool:
    """Whether the array holds real floats of any width."""
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def is_complex(x: Any) -> bool:
    """Whether the array holds complex numbers."""
    return bool(jnp.issubdtype(x.dtype, jnp.complexfloating))


def is_signed(x: Any) -> bool:
    """Whether the array holds signed integers."""
    return bool(jnp.issubdtype(x.dtype, jnp.signedinteger))


def aligned(*arrays: Any) -> list[Any]:
    """The arrays, broadcast to their common sizes (lax functions do not broadcast)."""
    shape = lax.broadcast_shapes(*(a.shape for a in arrays))
    return [a if a.shape == shape else jnp.broadcast_to(a, shape) for a in arrays]


def select(mask: Any, x: Any, y: Any) -> Any:
    """``where`` with broadcasting; `x` and `y` have one dtype, or are Python numbers that take it."""
    return jnp.where(mask, x, y)


def bits_of(x: Any) -> Any:
    """The bit pattern of floats as signed integers of the same width."""
    return lax.bitcast_convert_type(x, f"int{x.dtype.itemsize * 8}")


def signbit(x: Any) -> Any:
    """Whether the sign bit is set; true for -0.0 and for NaNs that carry it."""
    if is_float(x):
        return bits_of(x) < 0
    return x < 0 if is_signed(x) else jnp.zeros(x.shape, bool)


def copy_sign(x: Any, y: Any) -> Any:
    """The magnitude of `x` with the sign of `y`, both floats."""
    magnitude = lax.abs(x)
    return select(signbit(y), -magnitude, magnitude)


def trunc(x: Any) -> Any:
    """Round towards zero, keeping the sign of zero."""
    return select(x < 0, lax.ceil(x), lax.floor(x))


def sqrt_reciprocal(x: Any) -> Any:
    """1/sqrt(x), the way the CPU rounds it (``lax.rsqrt`` is an approximation on some hosts)."""
    return 1 / lax.sqrt(x)


# --- functions that are one lax call: computed in the dtype of the result, half precisions in float32

_FLOAT: dict[str, Callable[[Any], Any]] = {
    "acos": lambda x: lax.acos(x),
    "acosh": lambda x: lax.acosh(x),
    "asin": lambda x: lax.asin(x),
    "asinh": lambda x: lax.asinh(x),
    "atan": lambda x: lax.atan(x),
    "atanh": lambda x: lax.atanh(x),
    "cos": lambda x: lax.cos(x),
    "cosh": lambda x: lax.cosh(x),
    "deg2rad": lambda x: x * (math.pi / 180),
    "erf": lambda x: lax.erf(x),
    "erfc": lambda x: lax.erfc(x),
    "erfinv": lambda x: lax.erf_inv(x),
    "exp": lambda x: lax.exp(x),
    "exp2": lambda x: lax.pow(jnp.full_like(x, 2), x),  # exact at integers, which lax.exp2 is not on CPU
    "expm1": lambda x: lax.expm1(x),
    "log": lambda x: lax.log(x),
    "log1p": lambda x: lax.log1p(x),
    "rad2deg": lambda x: x * (180 / math.pi),
    "reciprocal": lambda x: 1 / x,
    "rsqrt": sqrt_reciprocal,
    "sigmoid": lambda x: lax.logistic(x),
    "sin": lambda x: lax.sin(x),
    "sinh": lambda x: lax.sinh(x),
    "sqrt": lambda x: lax.sqrt(x),
    "tan": lambda x: lax.tan(x),
    "tanh": lambda x: lax.tanh(x),
}
for _name, _fn in _FLOAT.items():
    lowers(f"aten::{_name}", promote="result")(_fn)

# --- rounding: the identity on integers

_ROUNDING: dict[str, Callable[[Any], Any]] = {
    "ceil": lambda x: lax.ceil(x),
    "floor": lambda x: lax.floor(x),
    "round": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "trunc": trunc,
}


def _floats_only(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: fn(x) if is_float(x) else x


for _name, _fn in _ROUNDING.items():
    lowers(f"aten::{_name}", promote="result")(_floats_only(_fn))


@lowers("aten::round.decimals", promote="result")
def round_decimals(x: Any, *, decimals: int) -> Any:
    """Half to even at a decimal place; scales up for positive `decimals` and down for negative ones, as ATen does."""
    if not is_float(x):
        return x
    ten = 10.0 ** abs(decimals)
    if decimals >= 0:
        return _ROUNDING["round"](x * ten) / ten if decimals else _ROUNDING["round"](x)
    return _ROUNDING["round"](x / ten) * ten


@lowers("aten::frac", promote="result")
def frac(x: Any) -> Any:
    """The fractional part, with the sign of `x`."""
    return x - trunc(x)


# --- logarithms to other bases

_LOG10_2_HIGH = 1233 / 4096
"""log10(2) cut to 11 bits, so that its product with an exponent is exact."""


def _split_exponent(x: Any) -> tuple[Any, Any]:
    """``x == m * 2**e`` with m within a factor sqrt(2) of 1; where there is no logarithm, m is x and e is 0."""
    mantissa_bits = jnp.finfo(x.dtype).nmant
    bias = (1 << (x.dtype.itemsize * 8 - mantissa_bits - 2)) - 1
    bits = bits_of(x)
    one = bits_of(jnp.ones((), x.dtype))
    m = lax.bitcast_convert_type((bits & ((1 << mantissa_bits) - 1)) | one, x.dtype)
    e = (bits >> mantissa_bits) - bias
    high = m > math.sqrt(2)
    m, e = select(high, m / 2, m), select(high, e + 1, e)
    normal = (x >= jnp.finfo(x.dtype).tiny) & (x < jnp.inf)
    return select(normal, m, x), select(normal, e, 0).astype(x.dtype)


@lowers("aten::log2", promote="result")
def log2(x: Any) -> Any:
    """Exact at powers of two, because the exponent is taken from the bits."""
    if is_complex(x):
        return lax.log(x) / math.log(2)
    m, e = _split_exponent(x)
    return e + lax.log(m) * (1 / math.log(2))


@lowers("aten::log10", promote="result")
def log10(x: Any) -> Any:
    """The exponent's share is added in two parts, the larger one exact (fdlibm's scheme)."""
    if is_complex(x):
        return lax.log(x) / math.log(10)
    m, e = _split_exponent(x)
    return (lax.log(m) * (1 / math.log(10)) + e * (math.log10(2) - _LOG10_2_HIGH)) + e * _LOG10_2_HIGH


# --- signs


@lowers("aten::abs")
def absolute(x: Any) -> Any:
    """The magnitude; real for complex input. The smallest integer maps to itself."""
    return x if x.dtype == bool or jnp.issubdtype(x.dtype, jnp.unsignedinteger) else lax.abs(x)


@lowers("aten::neg", promote="result")
def neg(x: Any) -> Any:
    """Negation, modular for integers."""
    return lax.neg(x)


@lowers("aten::sign", promote="result")
def sign(x: Any) -> Any:
    """-1, 0 or 1; 0 for NaN, as on the CPU."""
    if x.dtype == bool:
        return x
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)


@lowers("aten::sgn", promote="result")
def sgn(x: Any) -> Any:
    """`sign` for reals, x / abs(x) for complex numbers (0 at 0)."""
    if not is_complex(x):
        return sign(x)
    magnitude = lax.abs(x)
    zero = magnitude == 0
    return select(zero, jnp.zeros((), x.dtype), x / select(zero, jnp.ones((), magnitude.dtype), magnitude))


@lowers("aten::signbit")
def signbit_rule(x: Any) -> Any:
    """The sign bit as a bool."""
    return signbit(x)


# --- complex numbers


@lowers("aten::_conj_physical", "aten::conj_physical_", "aten::conj_physical.out")
def conj_physical(x: Any) -> Any:
    """The complex conjugate, computed."""
    return lax.conj(x) if is_complex(x) else x


@lowers("aten::angle")
def angle(x: Any, *, out: OutSpec) -> Any:
    """The argument of a complex number; 0 or pi for reals, NaN for NaN."""
    if is_complex(x):
        return lax.atan2(lax.imag(x), lax.real(x))
    x = cast(x, out.dtype)
    return select(x < 0, jnp.asarray(math.pi, x.dtype), select(x != x, x, jnp.zeros((), x.dtype)))


# --- classification


def _parts(test: Callable[[Any], Any], x: Any) -> Any:
    if is_complex(x):
        return test(lax.real(x)) | test(lax.imag(x))
    return test(x) if is_float(x) else jnp.zeros(x.shape, bool)


@lowers("aten::isnan")
def isnan(x: Any) -> Any:
    """NaN in either part."""
    return _parts(lambda p: p != p, x)


@lowers("aten::isinf")
def isinf(x: Any) -> Any:
    """Infinite in either part."""
    return _parts(lambda p: lax.abs(p) == jnp.inf, x)


@lowers("aten::isposinf")
def isposinf(x: Any) -> Any:
    """Equal to +inf."""
    return _parts(lambda p: p == jnp.inf, x)


@lowers("aten::isneginf")
def isneginf(x: Any) -> Any:
    """Equal to -inf."""
    return _parts(lambda p: p == -jnp.inf, x)


@lowers("aten::nan_to_num")
def nan_to_num(x: Any, nan: Any = None, posinf: Any = None, neginf: Any = None, *, out: OutSpec) -> Any:
    """Replace NaN by 0 and infinities by the extremes of the dtype, or by the values given."""
    if is_complex(x):
        real, imag = (_replace_nonfinite(p, nan, posinf, neginf) for p in (lax.real(x), lax.imag(x)))
        return lax.complex(real, imag)
    return _replace_nonfinite(x, nan, posinf, neginf) if is_float(x) else x


def _replace_nonfinite(x: Any, nan: Any, posinf: Any, neginf: Any) -> Any:
    limits = jnp.finfo(x.dtype)
    values = [d if v is None else v for v, d in ((nan, 0), (posinf, limits.max), (neginf, limits.min))]
    nan, posinf, neginf = (jnp.asarray(v).astype(x.dtype) for v in values)
    x = select(x != x, nan, x)
    return select(x == jnp.inf, posinf, select(x == -jnp.inf, neginf, x))


# --- integers and bools


@lowers("aten::bitwise_not", promote="result")
def bitwise_not(x: Any) -> Any:
    """All bits flipped; logical for bools."""
    return ~x


@lowers("aten::logical_not")
def logical_not(x: Any) -> Any:
    """True where the value is zero."""
    return x == jnp.zeros((), x.dtype)


# --- taking floats apart


@lowers("aten::frexp.Tensor")
def frexp(x: Any) -> tuple[Any, Any]:
    """Mantissa in [0.5, 1) and exponent."""
    return jnp.frexp(x)
