"""Branches that a program takes for certain, because their index is computed from constants alone.

XLA folds these before anything else. Here NumPy computes them, for arrays of a few elements.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from torus.runtime.jaxlib_adapter import dtype
from torus.twin.module import Module, Op, Region, Value

SMALL = 64
"""Elements of the largest array that is looked at."""
_NAMES = {"i1": "bool", "f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16"}
_COMPARE = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}
_NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "and": np.bitwise_and,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "not": np.logical_not,
    "or": np.bitwise_or,
    "select": np.where,
    "subtract": np.subtract,
}


def fold_branches(module: Module) -> Module:
    """`module` with the one branch that is taken in the place of each whose index is known."""
    return Module(module.values, _Folding(module.values).region(module.main))


class _Folding:
    def __init__(self, values: list[Value]) -> None:
        self.values = values
        self.known: dict[int, Any] = {}
        self.stands_for: dict[int, int] = {}

    def region(self, region: Region) -> Region:
        ops: list[Op] = []
        self._ops(region.ops, ops)
        return Region(region.arguments, ops, self._renamed(region.returns))

    def _renamed(self, indices: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.stands_for.get(i, i) for i in indices) if self.stands_for else indices

    def _ops(self, ops: list[Op], result: list[Op]) -> None:
        for op in ops:
            op.operands = self._renamed(op.operands)
            if op.name == "case" and op.operands[0] in self.known:
                taken = op.regions[min(max(int(self.known[op.operands[0]]), 0), len(op.regions) - 1)]
                self._ops(taken.ops, result)
                self.stands_for.update(zip(op.results, self._renamed(taken.returns), strict=True))
                continue
            self._learn(op)
            if op.name in ("case", "while", "if"):
                op.regions = [self.region(inner) for inner in op.regions]
            elif self.stands_for:
                op.regions = [Region(r.arguments, r.ops, self._renamed(r.returns)) for r in op.regions]
            result.append(op)

    def _learn(self, op: Op) -> None:
        if op.results and prod(self.values[op.results[0]].shape) <= SMALL and all(i in self.known for i in op.operands):
            found = evaluate(op, [self.known[i] for i in op.operands], self.values)
            self.known.update(zip(op.results, found, strict=False))


def evaluate(op: Op, operands: list[Any], values: list[Value]) -> list[Any]:
    """What an op makes of arrays; empty where it is none of those that indices are computed with."""
    value = values[op.results[0]]
    if op.name in _NUMPY:
        return [_NUMPY[op.name](*operands)]
    if op.name in ("constant", "sdy.constant"):
        return _constant(op.attributes, value)
    if op.name == "convert":
        return [operands[0].astype(_dtype(value))]
    if op.name == "compare":
        found = re.search(r"comparison_direction (\w\w)", op.attributes)
        return [_COMPARE[found.group(1)](*operands)] if found else []
    if op.name == "iota":
        along = [1] * len(value.shape)
        along[op.ints("iota_dimension")[0]] = -1
        size = value.shape[op.ints("iota_dimension")[0]]
        return [np.broadcast_to(np.arange(size, dtype=_dtype(value)).reshape(along), value.shape)]
    if op.name == "broadcast_in_dim":
        shape = [1] * len(value.shape)
        for dim, size in zip(op.ints("broadcast_dimensions"), operands[0].shape, strict=True):
            shape[dim] = size
        return [np.broadcast_to(operands[0].reshape(shape), value.shape)]
    if op.name == "reshape":
        return [operands[0].reshape(value.shape)]
    if op.name == "reduce" and not value.shape:
        return _reduce(op, operands, values)
    return []


def _reduce(op: Op, operands: list[Any], values: list[Value]) -> list[Any]:
    half = len(operands) // 2
    state, body = operands[half:], op.regions[0]
    for element in zip(*(array.ravel() for array in operands[:half]), strict=True):
        known = dict(zip(body.arguments, [*state, *element], strict=True))
        for inner in body.ops:
            found = evaluate(inner, [known[i] for i in inner.operands], values)
            if not found:
                return []
            known.update(zip(inner.results, found, strict=True))
        state = [known[i] for i in body.returns]
    return state


def _dtype(value: Value) -> np.dtype[Any]:
    whole = re.fullmatch(r"(u?)i(\d+)", value.dtype)
    return dtype(_NAMES.get(value.dtype) or (f"{whole[1]}int{whole[2]}" if whole else value.dtype))


def _constant(attributes: str, value: Value) -> list[Any]:
    found = re.search(r"dense<(.*)> :", attributes)
    words = re.findall(r"[^\s,\[\]]+", found.group(1)) if found else []
    if not words or any(re.fullmatch(r"true|false|[-+]?[\d.]+(?:[eE][-+]?\d+)?", word) is None for word in words):
        return []  # bits in hexadecimal, complex numbers
    numbers = [word == "true" if word in ("true", "false") else float(word) for word in words]
    return [np.broadcast_to(np.array(numbers, _dtype(value)), (prod(value.shape),)).reshape(value.shape)]
