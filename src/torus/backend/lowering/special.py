"""Special functions: the gamma family, the normal distribution."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torus.backend.lowering.apply import current
from torus.backend.lowering.bessel import modified_bessel_i0, modified_bessel_i1
from torus.backend.lowering.elementwise import aligned, copy_sign, select
from torus.backend.lowering.lazy import jnp, jsp, lax
from torus.backend.lowering.registry import lowers

_ERFCX = (
    *(-0.6513268598908547, 0.64196979235649021, 0.019476473204185836, -0.0095615147868086323, -0.00094659534448203692),
    *(0.00036683949785276145, 4.2523324806907769e-05, -2.0278578112534242e-05, -1.6242900046470256e-06),
    *(1.3036558355805232e-06, 1.56264417e-08, -8.52380959e-08, 6.52905444e-09, 5.0593435e-09, -9.91364156e-10),
    *(-2.27365122e-10, 9.6467911e-11, 2.39403808e-12, -6.88602753e-12, 8.94487927e-13, 3.1309214e-13),
    *(-1.12708224e-13, 3.81090526e-16, 7.10609761e-15, -1.5230282e-15, -9.45749457e-17),
)
"""Chebyshev coefficients of log(erfcx(x) / t) in 2t - 1, with t = 2 / (2 + x), x >= 0; relative error below 1e-15."""


def erfcx(x: Any) -> Any:
    """exp(x * x) * erfc(x), without overflow or underflow on the right."""
    t = 2 / (2 + lax.abs(x))
    y = 4 * t - 2
    high = low = jnp.zeros_like(x)
    for coefficient in reversed(_ERFCX[1:]):  # Clenshaw's recurrence
        high, low = y * high - low + coefficient, high
    right = t * lax.exp(y / 2 * high - low + _ERFCX[0])
    return select(x < 0, 2 * lax.exp(x * x) - right, right)


def log_ndtr(x: Any) -> Any:
    """The logarithm of the normal distribution function, by whichever tail is small."""
    scaled = x * math.sqrt(0.5)
    left = lax.log(erfcx(-scaled) / 2) - scaled * scaled
    return select(x < -1, left, lax.log1p(-lax.erfc(scaled) / 2))


_SPECIAL: dict[str, Callable[[Any], Any]] = {
    "i0": modified_bessel_i0,
    "special_erfcx": erfcx,
    "special_i0e": lambda x: lax.bessel_i0e(x),
    "special_i1": modified_bessel_i1,
    "special_i1e": lambda x: lax.bessel_i1e(x),
    "special_log_ndtr": log_ndtr,
    "special_ndtri": lambda x: jsp.ndtri(x),
}
for _name, _fn in _SPECIAL.items():
    lowers(f"aten::{_name}", promote="result")(_fn)


# --- gamma and zeta


def _widened(x: Any) -> Any:
    """In float64, where that is cheap: XLA's formulas lose digits in float32 that CPU PyTorch keeps."""
    return x.astype("float64") if current().platform != "tpu" else x


@lowers("aten::lgamma", promote="result")
def lgamma(x: Any) -> Any:
    """The logarithm of the magnitude of gamma."""
    return lax.lgamma(_widened(x))


@lowers("aten::digamma", promote="result")
def digamma(x: Any) -> Any:
    """The logarithmic derivative of gamma; at zero an infinity of the opposite sign, NaN at negative integers."""
    x = _widened(x)
    pole = copy_sign(jnp.full_like(x, jnp.inf), -x)
    return select(x == 0, pole, lax.digamma(x))


@lowers("aten::polygamma", "aten::polygamma_", promote="result")
def polygamma(*args: Any) -> Any:
    """The n-th derivative of digamma; the in-place form has its arguments the other way round."""
    n, x = args if isinstance(args[0], int) else (args[1], args[0])
    if n == 0:
        return digamma(x)
    x = _widened(x)
    order = jnp.full_like(x, n + 1)
    sign = 1 if n % 2 else -1
    factorial = lax.exp(lax.lgamma(order)) if n > 20 else float(math.factorial(n))
    return sign * factorial * _zeta(order, x)


@lowers("aten::mvlgamma", promote="result")
def mvlgamma(x: Any, p: int) -> Any:
    """The logarithm of the multivariate gamma function of dimension `p`."""
    x = _widened(x)
    constant = p * (p - 1) / 4 * math.log(math.pi)
    return sum((lax.lgamma(x - j / 2) for j in range(p)), jnp.full_like(x, constant))


@lowers("aten::igamma", promote="result")
def igamma(a: Any, x: Any) -> Any:
    """The regularised lower incomplete gamma function."""
    return lax.igamma(*(_widened(v) for v in aligned(a, x)))


@lowers("aten::igammac", promote="result")
def igammac(a: Any, x: Any) -> Any:
    """The regularised upper incomplete gamma function."""
    return lax.igammac(*(_widened(v) for v in aligned(a, x)))


def _zeta(x: Any, q: Any) -> Any:
    """The Hurwitz zeta function; for negative `q` and an integer `x` too."""
    positive = select(q > 0, q, jnp.ones_like(q))
    left = lax.cond(jnp.any(q <= 0), _zeta_left, lambda x, q: x, x, select(q > 0, jnp.zeros_like(q), q))
    result = select(q > 0, lax.zeta(x, positive), left)
    return select(x > 1, result, select(x == 1, jnp.full_like(x, jnp.inf), jnp.full_like(x, jnp.nan)))


def _zeta_left(x: Any, q: Any) -> Any:
    """For q <= 0. The terms above 0 are one sum, those below, finitely many, another."""
    above, below = q - lax.floor(q), lax.ceil(q) - q
    pole = below == 0
    above, below = (select(pole, jnp.ones_like(q), v) for v in (above, below))
    sign = 1 - 2 * lax.rem(x, jnp.full_like(x, 2))
    result = lax.zeta(x, above) + sign * (lax.zeta(x, below) - lax.zeta(x, 1 - q))
    whole = select(x == lax.floor(x), result, jnp.full_like(x, jnp.nan))
    return select(pole, jnp.full_like(x, jnp.inf), whole)


@lowers("aten::special_zeta", "aten::special_zeta.self_scalar", "aten::special_zeta.other_scalar", promote="result")
def zeta(x: Any, q: Any) -> Any:
    """The Hurwitz zeta function."""
    return _zeta(*(_widened(v) for v in aligned(x, q)))


_PRIMS: dict[str, Callable[..., Any]] = {
    "digamma": digamma,
    "erfcx": erfcx,
    "igamma": igamma,
    "igammac": igammac,
    "lgamma": lgamma,
    "ndtri": lambda x: jsp.ndtri(x),
    "zeta": zeta,
}
for _name, _fn in _PRIMS.items():
    lowers(f"prims::{_name}", promote="result", eager=False)(_fn)

# --- others


@lowers("aten::sinc", promote="result")
def sinc(x: Any) -> Any:
    """sin(pi x) / (pi x), 1 at 0."""
    angle = x * math.pi
    zero = x == 0
    return select(zero, jnp.ones((), x.dtype), lax.sin(angle) / select(zero, jnp.ones((), x.dtype), angle))


@lowers("aten::special_entr", promote="result")
def entr(x: Any) -> Any:
    """-x log x, 0 at 0, -inf below; NaN stays."""
    inside = select(x == 0, jnp.zeros((), x.dtype), -x * lax.log(x))
    return select(x < 0, jnp.asarray(-jnp.inf, x.dtype), inside)
