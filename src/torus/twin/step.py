"""What a twin looks at: one step of a model as StableHLO, with what each argument is and where it lies."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal

Kind = Literal["parameter", "buffer", "state", "input", "constant"]
"""``"state"`` is the optimizer's."""

Spec = tuple[tuple[str, ...], ...]
"""For each dimension the mesh axes over which it is split; ``()`` for a dimension that is whole."""


@dataclass(frozen=True)
class Argument:
    """One argument or result of a step: global sizes, and how they are split over the mesh."""

    name: str
    kind: Kind
    shape: tuple[int, ...]
    dtype: str
    spec: Spec = ()
    donated: bool = False
    """Its memory is free for a result: a parameter that the step updates."""

    def local_shape(self, mesh: dict[str, int]) -> tuple[int, ...]:
        """Sizes of the part on one device of a mesh {axis: size}; an uneven split is rounded up, as XLA pads it."""
        parts = [prod(mesh[axis] for axis in axes) for axes in self.spec] or [1] * len(self.shape)
        return tuple(-(-size // part) for size, part in zip(self.shape, parts, strict=True))


@dataclass(frozen=True)
class Step:
    """One step as a StableHLO module over global sizes, partitioned by Shardy's annotations on its arguments."""

    name: str
    text: str
    arguments: tuple[Argument, ...]
    results: tuple[Argument, ...]
    mesh: dict[str, int] = field(default_factory=dict)
    """Axis to size; empty for one device."""
    places: tuple[str, ...] = ()
    """For each op of the main function, where there are places: module path or source line that it came from."""

    def resized(self, mesh: dict[str, int]) -> Step:
        """The same program over a mesh with the same axes, of other sizes."""
        axes = ", ".join(f'"{axis}"={size}' for axis, size in mesh.items())
        line = f"sdy.mesh @mesh = <[{axes}]>"
        text = re.sub(r"sdy\.mesh @mesh = <\[.*?\]>( \{.*\})?", line, self.text, count=1)
        text = re.sub(r"mhlo\.num_partitions = \d+", f"mhlo.num_partitions = {prod(mesh.values())}", text, count=1)
        return replace(self, text=text, mesh=dict(mesh))
