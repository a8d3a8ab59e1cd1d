"""One op of a graph: its arguments in the order of its schema, and its rule, traced once for each kind of call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import _disable_current_modes

from torus.backend.lowering.apply import Context, Operand, apply, current, tracing
from torus.backend.lowering.lazy import jax, jnp
from torus.backend.lowering.registry import RULES, OutSpec, Rule
from torus.backend.lowering.structure import VIEWS

_VIEWS = ("view_copy", "permute_copy", "transpose_copy", "t_copy", "unsqueeze_copy", "expand_copy", "alias_copy")
_INLINE = {*_VIEWS, "detach_copy", "bmm", "baddbmm"}
"""Ops that are not worth a function of their own, or that look at how their arguments were made
(`torus.backend.lowering.repeats`).
"""
_KEPT_CALLS = 4096
"""How many kinds of calls are remembered with their traces."""


class Parameter(NamedTuple):
    """One argument of an op. `kind` is "tensor", "number" (traced in eager mode), "place", "generator" or "static"."""

    name: str
    kind: str
    keyword: bool
    default: Any


def find_rule(op: Any) -> Rule | None:
    """The rule of an overload, or of the copying form of a view; None when there is none."""
    if not isinstance(op, torch._ops.OpOverload):
        return None
    name = op.name()
    return RULES.get(VIEWS.get(name, name))


@cache
def parameters(op: Any) -> tuple[Parameter, ...]:
    """The arguments of an overload, as its rule takes them."""
    rule = find_rule(op)
    return tuple(
        Parameter(a.name, _kind(a, rule), a.kwarg_only, a.default_value if a.has_default_value() else None)
        for a in op._schema.arguments
    )


def _kind(argument: Any, rule: Rule | None) -> str:
    kind = str(argument.real_type).removeprefix("Optional[").removesuffix("]")
    if "Tensor" in kind:
        return "tensor"
    if kind == "Generator":
        return "generator"
    if kind in ("Device", "Layout") or argument.name == "pin_memory":
        return "place"
    if rule is not None and argument.name in rule.static:
        return "static"
    if kind in ("number", "float", "List[number]") or (rule is not None and argument.name in rule.runtime):
        return "number"
    return "static"


@dataclass(frozen=True)
class Ref:
    """Where an array goes among the arguments of a call, and its part in type promotion (see `Operand`)."""

    position: int
    category: int


@dataclass(frozen=True)
class Number:
    """A constant of a call; `dtype` is the one in which eager mode would send it to the device."""

    value: complex | float | int | bool
    dtype: str


@dataclass(frozen=True)
class Call:
    """All that decides what a node computes, except its arrays.

    `exact` has the arguments as text: 0.0 and -0.0, or 1 and True, are equal in Python, and not to an op.
    """

    rule: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    outs: tuple[OutSpec, ...]
    avals: tuple[tuple[tuple[int, ...], str], ...]
    exact: str
    default_dtype: torch.dtype
    precision: str
    platform: str
    check_bounds: bool


@dataclass
class _Traced:
    fn: Any
    messages: list[str] = field(default_factory=list)


def lower_call(
    op: Any, args: Sequence[Any], kwargs: dict[str, Any], outs: Sequence[OutSpec], random: Any = None
) -> list[Any]:
    """The results of one op on arrays (`Operand`), constants and lists of them.

    random: the uint32[4] state of a random op. Raises NotImplementedError when the op has no rule, and what its rule
    raises.
    """
    rule = find_rule(op)
    if rule is None:
        raise NotImplementedError(f"{op} has no lowering for the tpu device")
    arrays: list[Any] = []
    wide = _wide(rule, [*args, *kwargs.values()])
    positional, named, numbers = [], {}, {}
    for i, parameter in enumerate(parameters(op)):
        given = args[i] if i < len(args) else kwargs.get(parameter.name, parameter.default)
        value = _encode(given, parameter, arrays, wide, rule.known.get(parameter.name, ()))
        if isinstance(given, (int, float)):
            numbers[parameter.name] = given
        if parameter.keyword:
            named[parameter.name] = value
        else:
            positional.append(value)
    rule.check(numbers)
    if fitted := {numbers[name] for name in rule.fits & numbers.keys()}:
        _check_fits(fitted, outs)
    if rule.draws:
        _add_random(parameters(op), positional, named, arrays, random)
    context = current()
    call = Call(
        rule.name,
        tuple(positional),
        tuple(named.items()),
        tuple(outs),
        tuple((tuple(a.shape), str(a.dtype)) for a in arrays),
        repr((positional, named)),
        torch.get_default_dtype(),
        context.precision,
        context.platform,
        context.check_bounds and context.checks is not None and not _has_known_index(rule, parameters(op), positional),
    )
    if rule.name.removeprefix("aten::").split(".")[0] in _INLINE:
        return _run(call, arrays)
    traced = _traced(call)
    results = traced.fn(*arrays)
    count = len(results) - len(traced.messages)
    if traced.messages and context.checks is not None:
        context.checks += list(zip(results[count:], traced.messages))
    return list(results[:count])


def _check_fits(numbers: set[float], outs: Sequence[OutSpec]) -> None:
    """Raises RuntimeError, in PyTorch's words, for a number that the dtype of the first result does not hold, and where
    the CPU does: not for single elements of less than 32 bits.
    """
    sizes: tuple[Any, ...] = outs[0].shape  # names where a program for any size is made
    single = all(isinstance(size, int) and size <= 1 for size in sizes)
    with _disable_current_modes():
        for number in numbers:
            torch.full((1 if single else 2,), number, dtype=getattr(torch, outs[0].dtype), device="cpu")


def _has_known_index(rule: Rule, params: Sequence[Parameter], positional: Sequence[Any]) -> bool:
    """Whether an index is a number of the graph, which PyTorch's meta kernel has checked when the graph was made."""
    places = (i for i, p in enumerate(params) if p.name == "index" and p.name in rule.runtime)
    return any(isinstance(positional[i], Number) for i in places)


def _add_random(params: Any, positional: list[Any], named: dict[str, Any], arrays: list[Any], random: Any) -> None:
    if random is None:
        raise NotImplementedError("random numbers are not drawn inside of control flow")
    state = Ref(len(arrays), 2)
    arrays.append(random)
    for i, parameter in enumerate(params):
        if parameter.kind == "generator" and not parameter.keyword:
            positional[i] = state
            return
    named["generator"] = state


def _wide(rule: Rule, values: Sequence[Any]) -> bool:
    """Whether numbers keep 64 bits: as the core decides for a call of the op."""
    operands = [o for o in _flat(values) if isinstance(o, Operand)]
    dtypes = [o.dtype for o in operands]
    floats = [d for d in dtypes if "float" in d or "complex" in d]
    if rule.wide or not operands or any(d in ("float64", "complex128") for d in dtypes):
        return True
    return not floats and torch.get_default_dtype() is torch.float64


def _flat(values: Sequence[Any]) -> list[Any]:
    return [v for value in values for v in (_flat(value) if isinstance(value, (list, tuple)) else [value])]


def _encode(value: Any, parameter: Parameter, arrays: list[Any], wide: bool, known: Sequence[float] = ()) -> Any:
    """`known`: numbers that the rule takes as they are."""
    if isinstance(value, (int, float)) and value in known:
        return value
    if isinstance(value, Operand):
        arrays.append(value.array)
        return Ref(len(arrays) - 1, value.category)
    if isinstance(value, (list, tuple)):
        return tuple(_encode(v, parameter, arrays, wide, known) for v in value)
    if parameter.kind in ("place", "generator"):
        return None
    if parameter.kind in ("number", "tensor") and isinstance(value, (bool, int, float, complex)):
        return Number(value, _number_dtype(value, wide))
    return value


def _number_dtype(value: complex | float | int | bool, wide: bool) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64"
    kind = "complex" if isinstance(value, complex) else "float"
    bits = (128 if wide else 64) if kind == "complex" else (64 if wide else 32)
    return f"{kind}{bits}"


@lru_cache(_KEPT_CALLS)
def _traced(call: Call) -> _Traced:
    traced = _Traced(None)

    def torus_op(*arrays: Any) -> list[Any]:
        context = Context(call.precision, call.platform, call.check_bounds, [])
        with tracing(context):
            results = _run(call, arrays)
        reports = context.checks or []
        traced.messages = [message for _, message in reports]
        return [*results, *(report for report, _ in reports)]

    traced.fn = jax.jit(torus_op)
    return traced


def _run(call: Call, arrays: Sequence[Any]) -> list[Any]:
    args = [_decode(a, arrays) for a in call.args]
    kwargs = {name: _decode(value, arrays) for name, value in call.kwargs}
    return apply(RULES[call.rule], args, kwargs, call.outs)


def _decode(value: Any, arrays: Sequence[Any]) -> Any:
    if isinstance(value, Ref):
        return Operand(arrays[value.position], value.category)
    if isinstance(value, Number):
        return Operand(jnp.asarray(value.value, value.dtype), 0)
    if isinstance(value, tuple):
        return [_decode(v, arrays) for v in value]
    return value
