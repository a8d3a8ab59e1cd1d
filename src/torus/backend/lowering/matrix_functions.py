"""The matrix exponential: a Taylor polynomial of degree 18 of the matrix scaled by a power of two, squared back."""

from __future__ import annotations

import math
from typing import Any

from torus.backend.lowering import matmul
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.linalg import eye_like, product
from torus.backend.lowering.reductions import widen
from torus.backend.lowering.registry import lowers

_LARGEST_NORM = {"float32": 3.01, "complex64": 3.01, "float64": 1.09, "complex128": 1.09}
"""The 1-norm up to which a polynomial of degree 18 is exact to rounding (Bader, Blanes, Casas 2019)."""


def _taylor(x: Any) -> Any:
    """The sum of x^k / k! for k <= 18, by powers of x^3: seven products."""
    identity = eye_like(x, x.shape[-1], x.shape[-1])
    square = product(x, x)
    cube = product(square, x)
    term = lambda k: identity / math.factorial(k) + x / math.factorial(k + 1) + square / math.factorial(k + 2)  # noqa: E731
    result = term(15) + cube / math.factorial(18)
    for k in (12, 9, 6, 3, 0):
        result = term(k) + product(cube, result)
    return result


def _squarings(x: Any) -> Any:
    """How often each matrix must be halved."""
    norm = jnp.max(jnp.sum(lax.abs(x), -2), -1)
    limit = _LARGEST_NORM[str(x.dtype)]
    needed = lax.ceil(lax.log(norm / limit) / math.log(2))
    highest = 140 if norm.dtype.itemsize == 4 else 1040
    return jnp.where((needed > 0) & (needed < highest), needed, 0).astype("int32")


@lowers("aten::linalg_matrix_exp")
def matrix_exp(x: Any) -> Any:
    """Of a half precision in float32; the caller rounds."""
    if x.size == 0:
        return x
    x = widen(x)
    times = _squarings(x)
    half = jnp.asarray(0.5, x.real.dtype)
    scaled = x * lax.pow(jnp.broadcast_to(half, times.shape), times.astype(half.dtype))[..., None, None].astype(x.dtype)

    def square(i: Any, y: Any) -> Any:
        return jnp.where((i < times)[..., None, None], product(y, y), y)

    return lax.fori_loop(0, jnp.max(times), square, _taylor(scaled))


@lowers("aten::_compute_linear_combination")
def linear_combination(x: Any, coefficients: Any) -> Any:
    """Sums of the slices of `x` along its first dimension, one for each row of coefficients."""
    return matmul.product(coefficients, x, ((1,), (0,)))
