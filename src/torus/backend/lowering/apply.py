"""Calling a rule: promotion of its arguments, casting of its results, checks that both are what PyTorch promised."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from torus.backend.lowering.dtypes import NAMES, OPMATH, from_name, to_name
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import OutSpec, Rule


@dataclass(frozen=True)
class Operand:
    """A traced argument and how it takes part in type promotion.

    `category` is 2 for a tensor with dimensions, 1 for a 0-d tensor, 0 for a Python number.
    """

    array: Any
    category: int

    @property
    def dtype(self) -> str:
        return str(self.array.dtype)


@dataclass
class Context:
    """State of the trace that is being made on this thread, for the few rules that need more than their arguments."""

    precision: str = "highest"
    platform: str = "cpu"
    check_bounds: bool = False
    checks: list[tuple[Any, str]] | None = None
    repeats: dict[int, tuple[Any, Any]] = field(default_factory=dict)  # see `torus.backend.lowering.repeats`


_local = threading.local()


def current() -> Context:
    """The context of the running trace; defaults outside one."""
    return getattr(_local, "context", None) or Context()


@contextmanager
def tracing(context: Context) -> Iterator[Context]:
    """Make `context` the current one on this thread."""
    previous = getattr(_local, "context", None)
    _local.context = context
    try:
        yield context
    finally:
        _local.context = previous
        if previous is None:
            context.repeats.clear()


def check_bounds(index: Any, size: int, dim: int, what: str = "index", *, lower: int | None = None) -> None:
    """Record that every element of `index` must lie in ``[lower, size)``; a violation becomes an IndexError naming it.

    `lower` defaults to ``-size`` (negative indices count from the end). Does nothing where bounds are not checked.
    """
    context = current()
    if not context.check_bounds or context.checks is None or index.size == 0:
        return
    low = -size if lower is None else lower
    flat = lax.convert_element_type(index.reshape(-1), "int64")
    bad = (flat < low) | (flat >= size)
    first = jnp.argmax(bad)
    report = jnp.stack([jnp.any(bad).astype("int64"), flat[first]])
    context.checks.append((report, f"{what} {{value}} is out of bounds for dimension {dim} with size {size}"))


def check_factorization(info: Any, message: str) -> None:
    """Record that every `info` must be 0; the first other one becomes a LinAlgError, `message` with its ``{value}``."""
    checks = current().checks
    if checks is None or info.size == 0:
        return
    flat = lax.convert_element_type(info.reshape(-1), "int64")
    bad = flat != 0
    checks.append((jnp.stack([jnp.any(bad).astype("int64"), flat[jnp.argmax(bad)]]), f"linalg:{message}"))


def check_values(bad: Any, message: str) -> None:
    """Record that no element of `bad` (bool) may be True; one that is becomes a RuntimeError with `message`."""
    context = current()
    if context.check_bounds and context.checks is not None:
        context.checks.append((jnp.stack([jnp.any(bad).astype("int64"), jnp.int64(0)]), f"value:{message}"))


def check_true(condition: Any, message: str) -> None:
    """Record that a 0-d bool must hold; it becomes a RuntimeError with the message where it does not."""
    checks = current().checks
    if checks is not None:
        failed = (~condition).astype("int64")
        checks.append((jnp.stack([failed, failed]), "value:" + message.replace("{", "{{").replace("}", "}}")))


def promoted_dtype(operands: Sequence[Operand]) -> str:
    """`torch.result_type` over operands of the three categories."""
    result: torch.dtype | None = None
    for category in (2, 1, 0):
        dtypes = [from_name(o.dtype) for o in operands if o.category == category]
        if not dtypes:
            continue
        level = dtypes[0]
        for dtype in dtypes[1:]:
            level = torch.promote_types(level, dtype)
        if category == 0:
            level = _number_dtype(level)
        if result is None or _kind(level) > _kind(result):
            result = level if result is None or not (level.is_complex and category == 0) else _to_complex(result)
    if result is None:
        raise ValueError("type promotion needs at least one operand")
    return to_name(result)


def _kind(dtype: torch.dtype) -> int:
    if dtype.is_complex:
        return 3
    if dtype.is_floating_point:
        return 2
    return 0 if dtype is torch.bool else 1


def _number_dtype(dtype: torch.dtype) -> torch.dtype:
    """A Python float counts as the default dtype, a complex number as its complex partner."""
    default = torch.get_default_dtype()
    if dtype.is_complex:
        return _to_complex(default)
    return default if dtype.is_floating_point else dtype


def _to_complex(dtype: torch.dtype) -> torch.dtype:
    if not dtype.is_floating_point:
        return _to_complex(torch.get_default_dtype())
    return torch.promote_types(dtype, torch.complex32)


def cast(array: Any, dtype: str) -> Any:
    """Convert to `dtype` as PyTorch's CPU does.

    Floats truncate to ints and what no int holds becomes the smallest one, complex drops its imaginary part, non-zero
    is True, and ``float8_e4m3fn`` saturates.
    """
    source = array.dtype
    if str(source) == dtype:
        return array
    if dtype == "bool":
        return array != jnp.zeros((), source)
    if jnp.issubdtype(source, jnp.complexfloating) and not dtype.startswith("complex"):
        array = lax.real(array)
    if jnp.issubdtype(array.dtype, jnp.floating):
        if dtype in _INTEGERS:
            return _truncate(array, dtype)
        if dtype == "float8_e4m3fn":
            # NaN passes through a clamp.
            array = lax.clamp(jnp.asarray(-448, array.dtype), array, jnp.asarray(448, array.dtype))
    return lax.convert_element_type(array, dtype)


_INTEGERS = {n for n, dtype in NAMES.items() if not (dtype.is_floating_point or dtype.is_complex or n == "bool")}


def _truncate(array: Any, dtype: str) -> Any:
    """Through the CPU's conversion register (32 bits, 64 for wide ints); its "indefinite" value stands for the rest."""
    wide = dtype in ("int64", "uint64", "uint32")
    bits, register = (63, "int64") if wide else (31, "int32")
    limit = 2.0**bits
    if array.dtype.itemsize < 4:
        array = lax.convert_element_type(array, "float32")
    inside = (array >= -limit) & (array < limit)
    value = jnp.where(inside, lax.convert_element_type(array, register), jnp.asarray(-(2**bits), register))
    return lax.convert_element_type(value, dtype)


def as_element(value: Any, dtype: str) -> Any:
    """A number as an element of a tensor of `dtype`. Raises RuntimeError where a complex one meets a real tensor."""
    if jnp.issubdtype(value.dtype, jnp.complexfloating) and dtype != "bool" and not dtype.startswith("complex"):
        raise RuntimeError(f"value cannot be converted to type {dtype} without overflow")
    return cast(value, dtype)


def apply(
    rule: Rule, args: Sequence[Any], kwargs: dict[str, Any], outs: Sequence[OutSpec], nested: list[Any] | None = None
) -> list[Any]:
    """Run `rule` on traced arguments (`Operand`, lists of them, or static values) and return one array for each result.

    `nested` receives the results as the rule groups them.

    Raises TypeError when the rule's results do not have the number or the sizes that PyTorch's meta kernel promised.
    """
    if rule.promote is not None:
        operands = [o for o in _flatten([*args, *kwargs.values()]) if isinstance(o, Operand)]
        dtype = outs[0].dtype if rule.promote == "result" else promoted_dtype(operands)
        dtype = OPMATH.get(dtype, dtype)
        convert = lambda o: cast(o.array, dtype)  # noqa: E731
    else:
        convert = lambda o: o.array  # noqa: E731
    args = [_map(convert, a) for a in args]
    kwargs = {k: _map(convert, v) for k, v in kwargs.items()}
    if rule.wants_out:
        kwargs["out"] = outs[0] if len(outs) == 1 else tuple(outs)
    results = rule.fn(*args, **kwargs)
    results = results if isinstance(results, (tuple, list)) else [results]
    if nested is not None:
        nested.extend(results)
    flat = list(_flatten(results))
    if len(flat) < len(outs):
        raise TypeError(f"the rule for {rule.name} returned {len(flat)} results, PyTorch promises {len(outs)}")
    return [_conform(rule.name, r, o) for r, o in zip(flat, outs)] + flat[len(outs) :]


def _conform(name: str, result: Any, out: OutSpec) -> Any:
    if result is None:
        return None
    if tuple(result.shape) != tuple(out.shape):
        sizes = tuple(result.shape)
        raise TypeError(f"the rule for {name} returned sizes {sizes}, PyTorch promises {tuple(out.shape)}")
    return cast(result, out.dtype)


def _flatten(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flatten(value)
        else:
            yield value


def _map(fn: Any, value: Any) -> Any:
    if isinstance(value, Operand):
        return fn(value)
    if isinstance(value, (list, tuple)):
        return [_map(fn, v) for v in value]
    return value
