"""Bessel functions of orders 0 and 1, the first Airy function: rational approximations near zero, waves far from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from torus.backend.lowering import bessel_tables as table
from torus.backend.lowering.elementwise import select
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import lowers


def _polynomial(coefficients: Sequence[float], x: Any) -> Any:
    """Horner's rule, highest power first."""
    result = jnp.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result


def _ratio(above: Sequence[float], below: Sequence[float], x: Any) -> Any:
    return _polynomial(above, x) / _polynomial(below, x)


def _chebyshev(coefficients: Sequence[float], y: Any) -> Any:
    """A Chebyshev series in y / 2, highest order first, by Clenshaw's recurrence."""
    last = before = jnp.zeros_like(y)
    result = jnp.full_like(y, coefficients[0])
    for coefficient in coefficients[1:]:
        before, last = last, result
        result = y * last - before + coefficient
    return (result - before) / 2


# --- oscillating: x > 5 is amplitude * (P cos - 5 / x Q sin) of a shifted angle


def _rotated(x: Any, order: int) -> tuple[Any, Any]:
    """Cosine and sine of x - pi / 4 (order 0) or x - 3 pi / 4, with no subtraction to round."""
    cosine, sine, half = lax.cos(x), lax.sin(x), math.sqrt(0.5)
    total, difference = (cosine + sine) * half, (sine - cosine) * half
    return (total, difference) if order == 0 else (difference, -total)


def _wave(x: Any, order: int, second: bool) -> Any:
    tables = (
        (table.J0_P_ABOVE, table.J0_P_BELOW, table.J0_Q_ABOVE, table.J0_Q_BELOW)
        if order == 0
        else (table.J1_P_ABOVE, table.J1_P_BELOW, table.J1_Q_ABOVE, table.J1_Q_BELOW)
    )
    t = 5 / x
    p, q = _ratio(*tables[:2], t * t), t * _ratio(*tables[2:], t * t)
    cosine, sine = _rotated(x, order)
    wave = p * sine + q * cosine if second else p * cosine - q * sine
    return wave * math.sqrt(2 / math.pi) / lax.sqrt(x)


def _j0_small(x: Any) -> Any:
    z = x * x
    ratio = (z - 5.78318596294678452118) * (z - 30.4712623436620863991) * _ratio(table.J0_ABOVE, table.J0_BELOW, z)
    return select(x < 1e-5, 1 - z / 4, ratio)


def _j1_small(x: Any) -> Any:
    z = x * x
    ratio = _ratio(table.J1_ABOVE, table.J1_BELOW, z)
    return ratio * x * (z - 14.6819706421238932572) * (z - 49.2184563216946036703)


def bessel_j0(x: Any) -> Any:
    x = lax.abs(x)
    return select(x <= 5, _j0_small(x), _wave(x, 0, second=False))


def bessel_j1(x: Any) -> Any:
    size = lax.abs(x)
    result = select(size <= 5, _j1_small(size), _wave(size, 1, second=False))
    return select(x < 0, -result, result)


def _of_positives(x: Any, result: Any, at_zero: float) -> Any:
    """A function that is infinite at 0 and not defined below."""
    return select(x == 0, jnp.full_like(x, at_zero), select(x < 0, jnp.full_like(x, jnp.nan), result))


def bessel_y0(x: Any) -> Any:
    small = _ratio(table.Y0_ABOVE, table.Y0_BELOW, x * x) + 2 / math.pi * lax.log(x) * _j0_small(x)
    return _of_positives(x, select(x <= 5, small, _wave(x, 0, second=True)), -math.inf)


def bessel_y1(x: Any) -> Any:
    rest = 2 / math.pi * (_j1_small(x) * lax.log(x) - 1 / x)
    small = x * _ratio(table.Y1_ABOVE, table.Y1_BELOW, x * x) + rest
    return _of_positives(x, select(x <= 5, small, _wave(x, 1, second=True)), -math.inf)


def spherical_bessel_j0(x: Any) -> Any:
    """sin(x) / x, by its series near 0."""
    series = [(-1) ** k / math.factorial(2 * k + 1) for k in range(6, -1, -1)]
    far = select(lax.abs(x) == jnp.inf, jnp.zeros_like(x), lax.sin(x) / x)
    return select(lax.abs(x) < 0.5, _polynomial(series, x * x), far)


# --- modified


def modified_bessel_i0(x: Any) -> Any:
    return lax.exp(lax.abs(x)) * lax.bessel_i0e(x)


def modified_bessel_i1(x: Any) -> Any:
    return lax.exp(lax.abs(x)) * lax.bessel_i1e(x)


def _k0(x: Any, scaled: bool) -> Any:
    small = _chebyshev(table.K0_SMALL, x * x - 2) - lax.log(x / 2) * modified_bessel_i0(x)
    return _second_kind(x, small, table.K0_LARGE, scaled)


def _k1(x: Any, scaled: bool) -> Any:
    small = lax.log(x / 2) * modified_bessel_i1(x) + _chebyshev(table.K1_SMALL, x * x - 2) / x
    return _second_kind(x, small, table.K1_LARGE, scaled)


def _second_kind(x: Any, small: Any, large: Sequence[float], scaled: bool) -> Any:
    """`small` up to 2, a series in 1 / x beyond; `scaled` by exp(x)."""
    far = _chebyshev(large, 8 / x - 2) / lax.sqrt(x)
    if scaled:
        small = small * lax.exp(x)
    else:
        far = lax.exp(-x) * far
    return _of_positives(x, select(x <= 2, small, far), math.inf)


# --- Airy


def _airy_left(x: Any) -> Any:
    """Below -2.09."""
    root = lax.sqrt(-x)
    size = -2 * x * root / 3
    z = 1 / size
    sine = lax.sin(size + math.pi / 4) * (1 + z * z * _ratio(table.AIRY_F_ABOVE, table.AIRY_F_BELOW, z * z))
    cosine = lax.cos(size + math.pi / 4) * z * _ratio(table.AIRY_G_ABOVE, table.AIRY_G_BELOW, z * z)
    return math.pi**-0.5 / lax.sqrt(root) * (sine - cosine)


def _airy_right(x: Any) -> Any:
    """From 2.09 on."""
    root = lax.sqrt(x)
    zeta = 2 * x * root / 3
    return math.pi**-0.5 * _ratio(table.AIRY_ABOVE, table.AIRY_BELOW, 1 / zeta) / (2 * lax.sqrt(root) * lax.exp(zeta))


def _airy_series(terms: int, first: int) -> list[float]:
    """Coefficients by powers of x^3, highest first, of the solution that begins with x^(first - 2)."""
    coefficients = [1.0]
    for k in range(terms):
        coefficients.append(coefficients[-1] / ((3 * k + first) * (3 * k + first + 1)))
    return coefficients[::-1]


def airy_ai(x: Any) -> Any:
    """NaN at both infinities, as in PyTorch. In float64, for the angle of the wave grows faster than its argument."""
    x = x.astype("float64")
    cube = x * x * x
    even, odd = _polynomial(_airy_series(16, 2), cube), x * _polynomial(_airy_series(16, 3), cube)
    near = 0.355028053887817239260 * even - 0.258819403792806798405 * odd
    far = select(x > 103.892, jnp.zeros_like(x), _airy_right(x))
    result = select(x < -2.09, _airy_left(x), select(x >= 2.09, far, near))
    return select(lax.abs(x) == jnp.inf, jnp.full_like(x, jnp.nan), result)


_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "airy_ai": airy_ai,
    "bessel_j0": bessel_j0,
    "bessel_j1": bessel_j1,
    "bessel_y0": bessel_y0,
    "bessel_y1": bessel_y1,
    "modified_bessel_i0": modified_bessel_i0,
    "modified_bessel_i1": modified_bessel_i1,
    "modified_bessel_k0": lambda x: _k0(x, scaled=False),
    "modified_bessel_k1": lambda x: _k1(x, scaled=False),
    "scaled_modified_bessel_k0": lambda x: _k0(x, scaled=True),
    "scaled_modified_bessel_k1": lambda x: _k1(x, scaled=True),
    "spherical_bessel_j0": spherical_bessel_j0,
}
for _name, _fn in _FUNCTIONS.items():
    lowers(f"aten::special_{_name}", promote="result")(_fn)

_PRIMS = ("bessel_j0", "bessel_j1", "spherical_bessel_j0")
for _name in _PRIMS:
    lowers(f"prims::{_name}", promote="result", eager=False)(_FUNCTIONS[_name])

for _name, _scaled in {
    "bessel_i0": modified_bessel_i0,
    "bessel_i1": modified_bessel_i1,
    "bessel_i0e": lambda x: lax.bessel_i0e(x),
    "bessel_i1e": lambda x: lax.bessel_i1e(x),
}.items():
    lowers(f"prims::{_name}", promote="result", eager=False)(_scaled)
