"""Sizes of an exported program that vary: their names, their ranges, and the sizes that a bundle gets programs for."""

from __future__ import annotations

import functools
import inspect
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from torus.backend.compile.symbols import Bindings
from torus.bundle import Dim, Tensor


class AnySize(Bindings):
    """Sizes that vary as JAX's tracer knows them, learned from the arguments of a trace."""

    def bind(self, placeholder: Any, given: Any) -> None:
        """See `Bindings`."""
        for size, actual in zip(placeholder.shape, given):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                self._values[size.node.expr] = actual

    def value(self, size: Any) -> Any:
        """See `Bindings`. Raises NotImplementedError for a question about a size, and for rare arithmetic."""
        if isinstance(size, torch.SymInt):
            return self._evaluate(size.node.expr)
        if isinstance(size, (torch.SymFloat, torch.SymBool)):
            raise NotImplementedError(f"{size} depends on sizes that vary")
        return size

    def sizes(self, sizes: Sequence[Any]) -> tuple[Any, ...]:
        """See `Bindings`."""
        return tuple(self.value(size) for size in sizes)

    def _evaluate(self, expression: Any) -> Any:
        if expression in self._values:
            return self._values[expression]
        if expression.is_Integer:
            return int(expression)
        operation = _ARITHMETIC.get(type(expression).__name__)
        if operation is None:
            raise NotImplementedError(f"the size {expression} cannot be traced while it varies")
        return functools.reduce(operation, map(self._evaluate, expression.args))


_ARITHMETIC = {
    "Add": operator.add,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Pow": operator.pow,
}


class Dims:
    """The dimensions of `program` that vary, by the names in `given`, else by input and place: ``"x_0"``.

    `inputs` are the fake tensors of its inputs.
    """

    def __init__(
        self, program: torch.export.ExportedProgram, inputs: Mapping[str, Any], given: Mapping[tuple[str, int], str]
    ) -> None:
        self.inputs = inputs
        self._names: dict[Any, str] = {}
        self._sizes: dict[str, Any] = {}
        self._ranges: dict[str, Dim] = {}
        for name, fake in inputs.items():
            for place, size in enumerate(fake.shape):
                self._add(program, size, given.get((name, place), f"{name}_{place}"))

    def _add(self, program: torch.export.ExportedProgram, size: Any, name: str) -> None:
        if not isinstance(size, torch.SymInt) or not size.node.expr.is_Symbol or size.node.expr in self._names:
            return
        bounds = program.range_constraints[size.node.expr]
        self._names[size.node.expr], self._sizes[name] = name, size
        self._ranges[name] = Dim(max(1, int(bounds.lower)), int(bounds.upper) if bounds.upper.is_Integer else None)

    def tensor(self, name: str, dtype: str, sizes: Sequence[Any]) -> Tensor:
        """An input or output as the manifest describes it."""
        return Tensor(name, dtype, tuple(self._show(size) for size in sizes))

    def _show(self, size: Any) -> int | str:
        if not isinstance(size, torch.SymInt):
            return int(size)
        return str(size.node.expr.xreplace({s: type(s)(name) for s, name in self._names.items()}))

    def ranges(self) -> dict[str, Dim]:
        """What each named size of an input may be; one that follows from others is checked by the programs' sizes."""
        shown = (self._show(size) for fake in self.inputs.values() for size in fake.shape)
        return self._ranges | {s: Dim() for s in shown if isinstance(s, str) and s not in self._ranges}

    def bind(self, sizes: Mapping[str, int]) -> Bindings:
        """A value for each dimension. Raises ValueError for one that is missing, unknown or out of its range."""
        if sizes.keys() != self._sizes.keys():
            wanted = ", ".join(self._sizes) or "none"
            raise ValueError(
                f"sizes were given for {', '.join(sizes) or 'none'}; the dimensions that vary are {wanted}"
            )
        bindings = Bindings()
        for name, size in sizes.items():
            if not self._ranges[name].admits(size):
                raise ValueError(f"{name}={size} is outside of what the model was exported for: {self._ranges[name]}")
            bindings.bind(self._sizes[name], size)
        return bindings

    def limits(self) -> list[str]:
        """What is known of the dimensions, as JAX takes it."""
        least = [f"{name} >= {dim.min}" for name, dim in self._ranges.items()]
        return least + [f"{name} <= {dim.max}" for name, dim in self._ranges.items() if dim.max is not None]


def names_of(model: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> dict[tuple[str, int], str]:
    """The names that `dynamic_shapes` gives: ``(input, place) -> name``, with inputs named as torch.export does."""
    bound = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    if not isinstance(dynamic_shapes, Mapping):
        dynamic_shapes = dict(zip(bound, dynamic_shapes or ()))
    return dict(_walk((), bound, dynamic_shapes))


def _walk(path: tuple[Any, ...], value: Any, spec: Any) -> Iterator[tuple[tuple[str, int], str]]:
    if not spec:
        return
    if isinstance(value, torch.Tensor):
        name = re.sub(r"\W", "_", "_".join(map(str, path))).lower()
        for place, dim in spec.items() if isinstance(spec, Mapping) else enumerate(spec):
            if isinstance(dim, torch.export.Dim):
                yield (name, place), dim.__name__
    elif isinstance(value, (Mapping, list, tuple)):
        for key, child in value.items() if isinstance(value, Mapping) else enumerate(value):
            known = spec.get(key) if isinstance(spec, Mapping) else spec[key]
            yield from _walk((*path, key), child, known)
