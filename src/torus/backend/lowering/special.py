"""Special functions of one tensor: gamma family, Bessel functions of the first orders, the normal distribution."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torus.backend.lowering.elementwise import copy_sign, select
from torus.backend.lowering.lazy import jnp, jsp, lax
from torus.backend.lowering.registry import lowers


def _i0(x: Any) -> Any:
    return lax.exp(lax.abs(x)) * lax.bessel_i0e(x)


def _i1(x: Any) -> Any:
    return lax.exp(lax.abs(x)) * lax.bessel_i1e(x)


_SPECIAL: dict[str, Callable[[Any], Any]] = {
    "i0": _i0,
    "special_erfcx": lambda x: jsp.erfcx(x),
    "special_i0e": lambda x: lax.bessel_i0e(x),
    "special_i1": _i1,
    "special_i1e": lambda x: lax.bessel_i1e(x),
    "special_log_ndtr": lambda x: jsp.log_ndtr(x),
    "special_modified_bessel_i0": _i0,
    "special_modified_bessel_i1": _i1,
    "special_ndtri": lambda x: jsp.ndtri(x),
}
for _name, _fn in _SPECIAL.items():
    lowers(f"aten::{_name}", promote="result")(_fn)


@lowers("aten::digamma", promote="result")
def digamma(x: Any) -> Any:
    """The logarithmic derivative of gamma; at zero an infinity of the opposite sign, NaN at negative integers."""
    pole = copy_sign(jnp.full_like(x, jnp.inf), -x)
    return select(x == 0, pole, lax.digamma(x))


@lowers("aten::polygamma", "aten::polygamma_", promote="result")
def polygamma(*args: Any) -> Any:
    """The n-th derivative of digamma; the in-place form has its arguments the other way round."""
    n, x = args if isinstance(args[0], int) else (args[1], args[0])
    if n == 0:
        return digamma(x)
    order = jnp.full_like(x, n + 1)
    sign = 1 if n % 2 else -1
    factorial = lax.exp(lax.lgamma(order)) if n > 20 else float(math.factorial(n))
    return sign * factorial * lax.zeta(order, x)


@lowers("aten::mvlgamma", promote="result")
def mvlgamma(x: Any, p: int) -> Any:
    """The logarithm of the multivariate gamma function of dimension `p`."""
    constant = p * (p - 1) / 4 * math.log(math.pi)
    return sum((lax.lgamma(x - j / 2) for j in range(p)), jnp.full_like(x, constant))


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
