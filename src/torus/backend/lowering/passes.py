"""Products of float32 as a matrix unit for bfloat16 makes them, in one pass or in three, also where there is none.

A pass multiplies inputs rounded to bfloat16 and adds up in float32. Three passes take each input as a sum of two
bfloat16 numbers and leave out the product of the small ones: Henry, Tang, Heinecke, "Leveraging the bfloat16 artificial
intelligence datatype for higher-precision computations" (2019). The products of bfloat16 numbers are exact in float32,
so that the only other difference to the unit is the order of the additions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torus.backend.lowering.apply import current
from torus.backend.lowering.lazy import jnp, lax

ASKED = {"default": "bf16", "high": "bf16x3", "highest": "highest"}
"""What `torch.tpu.precision` asks for. PyTorch's own setting only allows: a platform with no faster unit ignores it."""

_UNIT = {"bf16": "DEFAULT", "bf16x3": "HIGH"}
_EXPONENT, _MANTISSA = 8, 7

Bilinear = Callable[[Any, Any], Any]


def precision() -> Any:
    """The `lax.Precision` that the running trace asks of float32 products (matmul and convolution)."""
    said = current().precision
    return lax.Precision[_UNIT.get(said, said.upper())]


def in_passes(multiply: Bilinear, a: Any, b: Any) -> Any:
    """``multiply(a, b)``, which is linear in both; in passes if that was asked for and the platform does not do it."""
    said = current().precision
    if said not in _UNIT or current().platform == "tpu" or not a.dtype == b.dtype == "float32":
        return multiply(a, b)
    high_a, high_b = _rounded(a), _rounded(b)
    if said == "bf16":
        return multiply(high_a, high_b)
    small = multiply(_finite(high_a), _rest(b, high_b)) + multiply(_rest(a, high_a), _finite(high_b))
    return multiply(high_a, high_b) + small


def _rounded(x: Any) -> Any:
    return lax.reduce_precision(x, _EXPONENT, _MANTISSA)


def _rest(x: Any, high: Any) -> Any:
    return _rounded(_finite(x - high))


def _finite(x: Any) -> Any:
    """Infinities count in the first pass alone: times the nothing that rounding leaves they would be NaN."""
    return jnp.where(jnp.isfinite(x), x, jnp.zeros((), x.dtype))
