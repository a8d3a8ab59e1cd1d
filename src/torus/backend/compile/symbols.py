"""Sizes that a graph knows only by name: their values in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torus.backend.lowering.dtypes import to_name
from torus.backend.lowering.registry import OutSpec


class Bindings:
    """Symbol -> number. Raises NotImplementedError for a size that no argument tells, such as a count of non-zeros."""

    def __init__(self) -> None:
        self._values: dict[Any, int] = {}

    def bind(self, placeholder: Any, given: Any) -> None:
        """Learn from one argument: a number, or the sizes of a tensor."""
        pairs = zip(placeholder.shape, given) if isinstance(placeholder, torch.Tensor) else [(placeholder, given)]
        for size, value in pairs:
            expression = _expression(size)
            if expression is not None and expression.is_Symbol:
                self._values[expression] = int(value)

    def knows(self, size: Any) -> bool:
        """Whether the arguments tell `size`; a number that a loop carries has its value in the loop only."""
        return _expression(size).free_symbols <= self._values.keys()

    def value(self, size: Any) -> Any:
        """A size, stride or number as Python knows it."""
        expression = _expression(size)
        if expression is None:
            return size
        known = self.number(expression)
        return bool(known) if isinstance(size, torch.SymBool) else known

    def number(self, expression: Any) -> Any:
        """An expression of symbols as a number."""
        known = expression.subs(self._values)
        if known.free_symbols:
            names = ", ".join(sorted(map(str, known.free_symbols)))
            raise NotImplementedError(f"the size {expression} depends on values that are computed ({names})")
        return known if known.is_Boolean else _number(known)

    def sizes(self, sizes: Sequence[Any]) -> tuple[int, ...]:
        """Each of `sizes` as a number."""
        return tuple(int(self.value(size)) for size in sizes)

    def spec(self, fake: Any) -> OutSpec:
        """What a node promises of its result; of a result that it leaves out, something empty."""
        if fake is None:
            return OutSpec((0,), "float32")
        return OutSpec(self.sizes(fake.shape), to_name(fake.dtype))


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)) else None


def _number(expression: Any) -> int | float:
    return int(expression) if expression.is_integer else float(expression)
