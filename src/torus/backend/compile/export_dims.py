"""Sizes of an exported program that vary: their names, their ranges, and the sizes that a bundle gets programs for."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from torus.backend.compile.symbols import Bindings
from torus.bundle import Dim, Tensor


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
        self._ranges[name] = Dim(int(bounds.lower), int(bounds.upper) if bounds.upper.is_Integer else None)

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
        """Values for every dimension. Raises ValueError for one that is missing, unknown or out of its range."""
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

    def of_examples(self, examples: Mapping[str, torch.Tensor]) -> dict[str, int]:
        """The sizes that the example inputs have."""
        bindings = Bindings()
        for name, fake in self.inputs.items():
            bindings.bind(fake, examples[name].shape)
        return {name: bindings.value(size) for name, size in self._sizes.items()}


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
