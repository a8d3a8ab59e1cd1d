"""Orthogonal polynomials of a degree that is an argument: by recurrence, Chebyshev's inside (-1, 1) by angles.

A degree is truncated to an integer. A negative one gives 0, and so does one that is NaN or infinite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torus.backend.lowering.elementwise import aligned, select, trunc
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import lowers

Step = Callable[[Any, Any, Any], Any]
"""The polynomial of degree k + 1, from k and those of degrees k and k - 1."""


def _degrees(n: Any) -> Any:
    return select(lax.abs(n) < 2.0**63, trunc(n), jnp.full_like(n, -1))


def _recurrence(n: Any, first: Any, step: Step) -> Any:
    """The polynomial of degree `n`, from that of degree 1. Stops early where it has become NaN."""

    def unfinished(k: Any, value: Any) -> Any:
        return (k < n) & (value == value)

    def advance(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        k, before, value = state
        active = unfinished(k, value)
        return k + 1, select(active, value, before), select(active, step(k, value, before), value)

    one = jnp.ones_like(first)
    start = (jnp.ones((), n.dtype), one, first)
    value = lax.while_loop(lambda s: jnp.any(unfinished(s[0], s[2])), advance, start)[2]
    return select(n < 0, jnp.zeros_like(first), select(n == 0, one, value))


def _alternating(n: Any) -> Any:
    """(-1)^n."""
    return 1 - 2 * lax.abs(lax.rem(n, jnp.full_like(n, 2)))


class _Chebyshev(NamedTuple):
    """A kind: degree 1, values of degree n at 1 and (up to the sign) at -1, and the closed form in angles."""

    first: Callable[[Any], Any]
    at_one: Callable[[Any], Any]
    at_minus_one: Callable[[Any], Any]
    by_angle: Callable[[Any, Any], Any]


def _one(n: Any) -> Any:
    return jnp.ones_like(n)


_KINDS = {
    "t": _Chebyshev(lambda x: x, _one, _one, lambda n, a: lax.cos(n * a)),
    "u": _Chebyshev(lambda x: 2 * x, lambda n: n + 1, lambda n: n + 1, lambda n, a: lax.sin((n + 1) * a) / lax.sin(a)),
    "v": _Chebyshev(
        lambda x: 2 * x - 1, _one, lambda n: 2 * n + 1, lambda n, a: lax.cos((n + 0.5) * a) / lax.cos(a / 2)
    ),
    "w": _Chebyshev(
        lambda x: 2 * x + 1, lambda n: 2 * n + 1, _one, lambda n, a: lax.sin((n + 0.5) * a) / lax.sin(a / 2)
    ),
}
_BY_ANGLE_ABOVE = {"t": 6, "u": 8, "v": 8, "w": 8}
_SHIFTED_BY_ANGLE_ABOVE = {"t": 6, "u": 6, "v": 6, "w": 4}


def _chebyshev(kind: _Chebyshev, above: int, x: Any, n: Any) -> Any:
    """Degrees greater than `above` are computed from the angle where there is one."""
    by_angle = (n > above) & (lax.abs(x) < 1)
    edge = select(x > 0, kind.at_one(n), _alternating(n) * kind.at_minus_one(n))
    closed = kind.by_angle(n, lax.acos(x))
    at_edge = lax.abs(x) == 1
    steps = select(by_angle | at_edge, jnp.ones_like(n), n)
    recurrence = _recurrence(steps, kind.first(x), lambda k, value, before: 2 * x * value - before)
    result = select(at_edge, edge, select(by_angle, closed, recurrence))
    return select(n < 0, jnp.zeros_like(x), result)


def _hermite(x: Any, n: Any, first: Any, step: Step) -> Any:
    """NaN above the degree at which the largest float is exceeded."""
    limit = 128 if x.dtype.itemsize == 4 else 512
    value = _recurrence(select(n > limit, jnp.ones_like(n), n), first, step)
    return select(n > limit, jnp.full_like(x, jnp.nan), value)


def _hermite_h(x: Any, n: Any) -> Any:
    """The physicist's."""
    return _hermite(x, n, 2 * x, lambda k, value, before: 2 * x * value - 2 * k * before)


def _hermite_he(x: Any, n: Any) -> Any:
    """The probabilist's."""
    return _hermite(x, n, x, lambda k, value, before: x * value - k * before)


def _laguerre(x: Any, n: Any) -> Any:
    step: Step = lambda k, value, before: ((2 * k + (1 - x)) * value - k * before) / (k + 1)  # noqa: E731
    value = _recurrence(select(x == 0, jnp.zeros_like(n), n), 1 - x, step)
    return select(n < 0, jnp.zeros_like(x), value)


def _legendre(x: Any, n: Any) -> Any:
    edge = lax.abs(x) == 1
    step: Step = lambda k, value, before: ((2 * k + 1) * x * value - k * before) / (k + 1)  # noqa: E731
    value = _recurrence(select(edge, jnp.zeros_like(n), n), x, step)
    value = select(edge, select(x > 0, jnp.ones_like(x), _alternating(n)), value)
    return select(n < 0, jnp.zeros_like(x), value)


def _overloads(name: str) -> list[str]:
    return [f"aten::special_{name}{suffix}" for suffix in ("", ".x_scalar", ".n_scalar")]


def _register(name: str, fn: Callable[[Any, Any], Any]) -> None:
    def rule(x: Any, n: Any) -> Any:
        x, n = aligned(x, n)
        return fn(x, _degrees(n))

    lowers(*_overloads(name), promote="result")(rule)


def _register_chebyshev(name: str, kind: _Chebyshev) -> None:
    above, shifted_above = _BY_ANGLE_ABOVE[name], _SHIFTED_BY_ANGLE_ABOVE[name]
    _register(f"chebyshev_polynomial_{name}", lambda x, n: _chebyshev(kind, above, x, n))
    _register(f"shifted_chebyshev_polynomial_{name}", lambda x, n: _chebyshev(kind, shifted_above, x + x - 1, n))


for _name, _kind in _KINDS.items():
    _register_chebyshev(_name, _kind)
_register("hermite_polynomial_h", _hermite_h)
_register("hermite_polynomial_he", _hermite_he)
_register("laguerre_polynomial_l", _laguerre)
_register("legendre_polynomial_p", _legendre)
