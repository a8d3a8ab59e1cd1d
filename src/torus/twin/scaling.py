"""The same step over more and more chips: what part of their time they would compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from torus.twin.analytic import estimate
from torus.twin.case import Case
from torus.twin.estimate import Estimate
from torus.twin.topology import Topology

MOST_CHIPS = 512
MODEL_AXIS = 8
"""Devices over which a model is split at most by tensor parallelism; the rest split the batch."""

Kind = Literal["weak", "strong"]
SHARDINGS = ("data", "fsdp", "tensor")


@dataclass(frozen=True)
class Point:
    """A step on one topology."""

    topology: Topology
    mesh: dict[str, int]
    batch: int | None
    estimate: Estimate
    seconds: float
    """Of the step: arithmetic and HBM, or the links, whichever takes longer."""
    collective_seconds: float
    efficiency: float
    """Examples a second and device, against the smallest topology."""
    efficiency_without_overlap: float
    """The same where links wait for arithmetic and arithmetic for links."""
    fits: bool


@dataclass(frozen=True)
class Curve:
    """One sharding over topologies of one family."""

    kind: Kind
    sharding: str
    points: tuple[Point, ...]
    note: str = ""

    @property
    def title(self) -> str:
        batch = "a batch that grows with the chips" if self.kind == "weak" else "one batch"
        return f"{self.kind.capitalize()} scaling, {self.sharding}: {batch}"


def scale(case: Case, topology: Topology, progress: Callable[[str], None]) -> tuple[Curve, ...]:
    """Weak and strong scaling for each sharding, over the family of `topology`."""
    local = max(1, (case.batch or 1) // topology.devices)
    curves = []
    for kind in ("weak", "strong"):
        for sharding in SHARDINGS:
            progress(f"scaling: {kind}, {sharding}")
            points, note = _points(case, topology, kind, sharding, local)
            if points:
                curves.append(Curve(kind, sharding, tuple(points), note))
    return tuple(curves)
