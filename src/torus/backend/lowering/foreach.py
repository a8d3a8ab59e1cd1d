"""Ops over lists of tensors, each one program: generated from the rules of the ops on one tensor.

Each element is computed in the dtype of its own result, as a loop of PyTorch calls would compute it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torus.backend.lowering import (  # noqa: F401  their rules are looked up
    activation,
    binary,
    comparison,
    elementwise,
    matmul,
    reductions,
)
from torus.backend.lowering.apply import cast
from torus.backend.lowering.dtypes import OPMATH
from torus.backend.lowering.lazy import jnp
from torus.backend.lowering.registry import RULES, OutSpec, lowers

Outs = tuple[OutSpec, ...]

_UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round "
    "rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
).split()

_BINARY = {  # name: (rule of one element, the kinds of second argument)
    "add": ("add.Tensor", "List Scalar ScalarList Tensor"),
    "clamp_max": ("minimum", "List Scalar ScalarList"),
    "clamp_min": ("maximum", "List Scalar ScalarList"),
    "div": ("div.Tensor", "List Scalar ScalarList Tensor"),
    "maximum": ("maximum", "List Scalar ScalarList"),
    "minimum": ("minimum", "List Scalar ScalarList"),
    "mul": ("mul.Tensor", "List Scalar ScalarList Tensor"),
    "sub": ("sub.Tensor", "List Scalar ScalarList"),
}

_TERNARY = {  # PyTorch itself turns the tensor of scalars of addcdiv.Tensor and addcmul.Tensor into calls of these
    "addcdiv": ("addcdiv", "Scalar ScalarList"),
    "addcmul": ("addcmul", "Scalar ScalarList"),
    "lerp": ("lerp.Scalar", "List Scalar ScalarList"),
}


def _specs(out: OutSpec | Outs) -> Outs:
    """The results' specifications; a list of one result arrives bare."""
    return (out,) if isinstance(out, OutSpec) else tuple(out)


def _each(name: str, count: int, *args: Any, out: Outs, **kwargs: Any) -> list[Any]:
    """Run the rule `name` once an element; lists give their i-th item, everything else goes to each."""
    rule = RULES[name]

    def item(value: Any, i: int, dtype: str) -> Any:
        value = value[i] if isinstance(value, list) else value
        return value if rule.promote is None else cast(jnp.asarray(value), dtype)

    results = []
    for i in range(count):
        dtype = OPMATH.get(out[i].dtype, out[i].dtype)
        named = {k: item(v, i, dtype) for k, v in kwargs.items()}
        if rule.wants_out:
            named["out"] = out[i]
        results.append(rule.fn(*(item(a, i, dtype) for a in args), **named))
    return results


def _unary(name: str) -> Callable[..., Any]:
    def rule(tensors: list[Any], *, out: Any) -> list[Any]:
        return _each(name, len(tensors), tensors, out=_specs(out))

    return rule


def _binary(name: str) -> Callable[..., Any]:
    def rule(tensors: list[Any], other: Any, *, out: Any, **alpha: Any) -> list[Any]:
        return _each(name, len(tensors), tensors, other, out=_specs(out), **alpha)

    return rule


def _weighted(name: str) -> Callable[..., Any]:
    def rule(tensors: list[Any], a: list[Any], b: list[Any], value: Any = 1, *, out: Any) -> list[Any]:
        return _each(name, len(tensors), tensors, a, b, out=_specs(out), value=value)

    return rule


def _lerp(name: str) -> Callable[..., Any]:
    def rule(tensors: list[Any], ends: list[Any], weight: Any, *, out: Any) -> list[Any]:
        return _each(name, len(tensors), tensors, ends, weight, out=_specs(out))

    return rule


for _name in _UNARY:
    lowers(f"aten::_foreach_{_name}")(_unary(f"aten::{_name}"))
for _name, (_element, _kinds) in _BINARY.items():
    lowers(*(f"aten::_foreach_{_name}.{k}" for k in _kinds.split()))(_binary(f"aten::{_element}"))
for _name, (_element, _kinds) in _TERNARY.items():
    _make = _lerp if _name == "lerp" else _weighted
    lowers(*(f"aten::_foreach_{_name}.{k}" for k in _kinds.split()))(_make(f"aten::{_element}"))


# --- ops that are not one elementwise rule


def _items(value: Any, count: int) -> list[Any]:
    return value if isinstance(value, list) else [value] * count


@lowers(
    "aten::_foreach_pow.List",
    "aten::_foreach_pow.Scalar",
    "aten::_foreach_pow.ScalarList",
    "aten::_foreach_pow.ScalarAndTensor",
    known={"exponent": tuple(binary.POWERS)},
)
def foreach_pow(base: Any, exponent: Any, *, out: Any) -> list[Any]:
    """base ** exponent; single exponents keep the exact short cuts of `pow.Tensor_Scalar`."""
    results = []
    specs = _specs(out)
    for x, y, spec in zip(_items(base, len(specs)), _items(exponent, len(specs)), specs):
        dtype = OPMATH.get(spec.dtype, spec.dtype)
        x = cast(jnp.asarray(x), dtype)
        y = y if isinstance(y, (int, float)) else cast(jnp.asarray(y), dtype)
        single = jnp.ndim(y) == 0 and isinstance(base, list)
        results.append(binary.power_scalar(x, y, out=spec) if single else binary.power(x, y))
    return results


@lowers("aten::_foreach_norm.Scalar", static=("ord",))
def foreach_norm(tensors: list[Any], ord: float = 2, dtype: Any = None, *, out: Any) -> list[Any]:
    """The norm of each tensor."""
    norm = RULES["aten::linalg_vector_norm"].fn
    return [norm(x, ord, None, out=spec) for x, spec in zip(tensors, _specs(out))]


@lowers("aten::_foreach_powsum.Scalar", static=("ord",))
def foreach_powsum(tensors: list[Any], ord: float = 2, dtype: Any = None, *, out: Any) -> list[Any]:
    """The sum of abs(x) ** ord of each tensor."""
    powsum = RULES["aten::linalg__powsum"].fn
    return [powsum(x, ord, None, out=spec) for x, spec in zip(tensors, _specs(out))]


@lowers("aten::_foreach_max")
def foreach_max(tensors: list[Any]) -> list[Any]:
    """The largest element of each tensor."""
    return [RULES["aten::max"].fn(x) for x in tensors]


@lowers("aten::_foreach_mm")
def foreach_mm(tensors: list[Any], others: list[Any]) -> list[Any]:
    """The matrix product of each pair."""
    return [RULES["aten::mm"].fn(a, b) for a, b in zip(tensors, others)]


@lowers("aten::_foreach_copy")
def foreach_copy(tensors: list[Any], sources: list[Any], non_blocking: bool = False) -> list[Any]:
    """The sources, in the sizes and dtypes of the tensors."""
    return [jnp.broadcast_to(s, x.shape) for x, s in zip(tensors, sources)]


@lowers("aten::_foreach_clone")
def foreach_clone(tensors: list[Any], *, memory_format: Any = None) -> list[Any]:
    """Copies."""
    return list(tensors)


@lowers("aten::_foreach_zero")
def foreach_zero(tensors: list[Any]) -> list[Any]:
    """Zeros."""
    return [jnp.zeros_like(x) for x in tensors]
