"""Elementwise comparisons, logic, clamping and choosing between values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torus.backend.lowering.apply import as_element, cast
from torus.backend.lowering.binary import maximum, minimum
from torus.backend.lowering.lazy import jnp
from torus.backend.lowering.registry import OutSpec, lowers

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda x, y: x == y,
    "ge": lambda x, y: x >= y,
    "gt": lambda x, y: x > y,
    "le": lambda x, y: x <= y,
    "lt": lambda x, y: x < y,
    "ne": lambda x, y: x != y,
}
for _name, _compare in _COMPARISONS.items():
    lowers(f"aten::{_name}.Tensor", f"aten::{_name}.Scalar", promote="common")(_compare)

_LOGIC: dict[str, Callable[[Any, Any], Any]] = {
    "logical_and": lambda x, y: x & y,
    "logical_or": lambda x, y: x | y,
    "logical_xor": lambda x, y: x ^ y,
}


def _on_bools(combine: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, y: combine(cast(x, "bool"), cast(y, "bool"))


for _name, _combine in _LOGIC.items():
    lowers(f"aten::{_name}")(_on_bools(_combine))

# --- clamping


@lowers("aten::clamp", "aten::clamp.Tensor", promote="result", fits=("min", "max"))
def clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    """``minimum(maximum(x, min), max)``: `max` wins over `min`, NaN in any of them is NaN."""
    x = x if min is None else maximum(x, min)
    return x if max is None else minimum(x, max)


lowers("aten::clamp_min", "aten::clamp_min.Tensor", promote="result", fits=("min",))(lambda x, min: maximum(x, min))
lowers("aten::clamp_max", "aten::clamp_max.Tensor", promote="result", fits=("max",))(lambda x, max: minimum(x, max))


@lowers("aten::threshold", promote="result", fits=("value",))
def threshold(x: Any, threshold: Any, value: Any) -> Any:
    """`value` where x does not exceed the threshold; NaN stays."""
    return jnp.where(x <= threshold, value, x)


@lowers("aten::threshold_backward", promote="result")
def threshold_backward(grad: Any, x: Any, threshold: Any) -> Any:
    """The gradient where x exceeds the threshold (or is NaN)."""
    return jnp.where(x <= threshold, jnp.zeros((), grad.dtype), grad)


# --- choosing


@lowers("aten::where.self")
def where(condition: Any, x: Any, y: Any, *, out: OutSpec) -> Any:
    """x where the condition holds, y elsewhere."""
    return jnp.where(cast(condition, "bool"), cast(x, out.dtype), cast(y, out.dtype))


@lowers("aten::masked_fill.Scalar", "aten::masked_fill.Tensor", fits=("value",))
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    """`value`, converted to the dtype of x, where the mask holds."""
    return jnp.where(cast(mask, "bool"), as_element(value, str(x.dtype)), x)


# --- membership

_FEW = 64
"""Up to how many values each element is compared with all of them."""


@lowers("aten::isin.Tensor_Tensor", "aten::isin.Tensor_Scalar", "aten::isin.Scalar_Tensor", promote="common")
def isin(elements: Any, values: Any, *, assume_unique: bool = False, invert: bool = False) -> Any:
    """Whether each element equals one of the values (whether none, if `invert`)."""
    values = values.reshape(-1)
    if values.size <= _FEW:
        found = jnp.any(elements[..., None] == values, -1)
    else:
        ordered = jnp.sort(values)
        place = jnp.minimum(jnp.searchsorted(ordered, elements), values.size - 1)
        found = ordered[place] == elements
    return ~found if invert else found
