"""Sizes that a graph knows only by name: their values in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torus.backend.lowering.dtypes import to_name
from torus.backend.lowering.registry import OutSpec

_TRIED_TIMES = 16
"""A symbol is looked for up to so many times the sizes that it is a part of."""


class Bindings:
    """Symbol -> number. Raises NotImplementedError for a size that no argument tells, such as a count of non-zeros."""

    def __init__(self) -> None:
        self._values: dict[Any, int] = {}
        self._told: list[tuple[Any, int]] = []

    def bind(self, placeholder: Any, given: Any) -> None:
        """Learn from one argument: a number, or the sizes of a tensor."""
        pairs = zip(placeholder.shape, given) if isinstance(placeholder, torch.Tensor) else [(placeholder, given)]
        for size, value in pairs:
            expression = _expression(size)
            if expression is not None and expression.is_Symbol:
                self._values[expression] = int(value)
            elif expression is not None and expression.free_symbols:
                self._told.append((expression, int(value)))

    def knows(self, size: Any) -> bool:
        """Whether the arguments tell `size`; a number that a loop carries has its value in the loop only."""
        return not self._unknown(_expression(size).subs(self._told))

    def value(self, size: Any) -> Any:
        """A size, stride or number as Python knows it."""
        expression = _expression(size)
        if expression is None:
            return size
        known = self.number(expression)
        return bool(known) if isinstance(size, torch.SymBool) else known

    def number(self, expression: Any) -> Any:
        """An expression of symbols as a number."""
        expression = expression.subs(self._told)  # parts that are known as a whole, whatever their symbols are
        if unknown := self._unknown(expression):
            names = ", ".join(sorted(map(str, unknown)))
            raise NotImplementedError(f"the size {expression} depends on values that are computed ({names})")
        known = expression.subs(self._values)
        return known if known.is_Boolean else _number(known)

    def _unknown(self, expression: Any) -> set[Any]:
        """The symbols of an expression that no argument tells, not even as a part of another size."""
        unknown = set()
        for symbol in expression.free_symbols - self._values.keys():
            told = [(e.subs(self._values), value) for e, value in self._told]
            found = find(symbol, [(e, value) for e, value in told if e.free_symbols == {symbol}])
            if found is None:
                unknown.add(symbol)
            else:
                self._values[symbol] = found
        return unknown

    def sizes(self, sizes: Sequence[Any]) -> tuple[int, ...]:
        """Each of `sizes` as a number."""
        return tuple(int(self.value(size)) for size in sizes)

    def spec(self, fake: Any) -> OutSpec:
        """What a node promises of its result; of a result that it leaves out, something empty."""
        if fake is None:
            return OutSpec((0,), "float32")
        return OutSpec(self.sizes(fake.shape), to_name(fake.dtype))


def find(symbol: Any, told: Sequence[tuple[Any, int]]) -> int | None:
    """The value of a symbol for which expressions of it have given values; None where they leave it open."""
    for expression, value in told:
        expanded = expression.expand()
        step = expanded.coeff(symbol)
        rest = expanded - step * symbol
        if step.is_number and step != 0 and not rest.free_symbols:
            return int((value - rest) / step)
    if not told:
        return None
    # Quotients, such as the halves of something: few enough to try.
    candidates = range(_TRIED_TIMES * (max(value for _, value in told) + 1))
    fitting = (n for n in candidates if all(e.subs(symbol, n) == value for e, value in told))
    first, second = next(fitting, None), next(fitting, None)
    return first if second is None else None


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)) else None


def _number(expression: Any) -> int | float:
    return int(expression) if expression.is_integer else float(expression)
