"""What PyTorch computes with symbolic sizes, on numbers of which some are traced."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy
from torch.utils._sympy import functions

from torus.backend.compile.dynamic.extents import Unpadded
from torus.backend.lowering.lazy import jnp


def compute(expression: Any, values: Sequence[Any]) -> Any:
    """The outermost operation of an expression, given the values of its arguments: Python numbers, or int64 or float64
    arrays. Raises Unpadded for an operation that is not in the table.
    """
    try:
        operation = _OPERATIONS[expression.func]
    except KeyError:
        raise Unpadded(f"the size {expression} is not understood") from None
    return operation(*values)


def _over(fn: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda *values: functools.reduce(fn, values)


def _real(x: Any) -> Any:
    return jnp.asarray(x, "float64")


def _whole(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: fn(_real(x)).astype("int64")


def _power(base: Any, exponent: Any) -> Any:
    """Of an integer by a natural number; by anything else, as sympy writes roots and quotients, of a real one."""
    return base**exponent if isinstance(exponent, int) and exponent >= 0 else _real(base) ** exponent


_OPERATIONS: dict[Any, Callable[..., Any]] = {
    sympy.Add: _over(operator.add),
    sympy.Mul: _over(operator.mul),
    sympy.Abs: abs,
    sympy.Pow: _power,
    functions.PowByNatural: _power,
    functions.FloatPow: lambda a, b: _real(a) ** b,
    functions.FloorDiv: operator.floordiv,
    functions.CleanDiv: operator.floordiv,
    functions.ModularIndexing: lambda a, divisor, modulus: a // divisor % modulus,
    functions.Mod: operator.mod,
    functions.PythonMod: operator.mod,
    functions.IntTrueDiv: lambda a, b: _real(a) / b,
    functions.FloatTrueDiv: lambda a, b: _real(a) / b,
    functions.ToFloat: _real,
    functions.TruncToFloat: lambda x: jnp.trunc(_real(x)),
    functions.Identity: lambda x: x,
    functions.OpaqueUnaryFn_sqrt: lambda x: jnp.sqrt(_real(x)),
    functions.OpaqueUnaryFn_log2: lambda x: jnp.log2(_real(x)),
    **dict.fromkeys((sympy.Max, functions.Max), _over(lambda a, b: jnp.maximum(a, b))),
    **dict.fromkeys((sympy.Min, functions.Min), _over(lambda a, b: jnp.minimum(a, b))),
    **dict.fromkeys((sympy.floor, functions.FloorToInt), _whole(lambda x: jnp.floor(x))),
    **dict.fromkeys((sympy.ceiling, functions.CeilToInt), _whole(lambda x: jnp.ceil(x))),
    functions.TruncToInt: _whole(lambda x: jnp.trunc(x)),
    functions.RoundToInt: _whole(lambda x: jnp.round(x)),
}
