"""The same step over more and more chips: what part of their time they would compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from torus.twin.analytic import estimate
from torus.twin.case import Case
from torus.twin.estimate import Estimate
from torus.twin.sharding import Role
from torus.twin.topology import Topology

MOST_CHIPS = 512
MODEL_AXIS = 8
"""Devices over which a model is split at most by tensor parallelism; the rest split the batch."""

Kind = Literal["weak", "strong"]
_KINDS: tuple[Kind, ...] = ("weak", "strong")
SHARDINGS: tuple[Role, ...] = ("data", "fsdp", "tensor")


@dataclass(frozen=True)
class Point:
    """A step on one topology."""

    topology: Topology
    mesh: dict[str, int]
    batch: int | None
    estimate: Estimate
    fits: bool
    efficiency: float = 1.0
    """Examples a second and device, against the smallest topology."""
    efficiency_without_overlap: float = 1.0
    """The same where links wait for arithmetic and arithmetic for links."""

    @property
    def speed(self) -> float:
        """Examples, or steps, for each second and device."""
        return (self.batch or 1) / self.topology.devices / self.estimate.roofline_seconds

    @property
    def speed_without_overlap(self) -> float:
        found = self.estimate
        local = found.roofline_seconds if found.local_seconds is None else found.local_seconds
        return (self.batch or 1) / self.topology.devices / (local + found.link_seconds)


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
    """Weak and strong scaling for each sharding, over the family of `topology` up to 512 chips.

    Weak: each device has as many examples as it has in `case` on `topology`. Strong: all of them together do.
    """
    places = _places(topology.chip.family)
    local = max(1, (case.batch or 1) // topology.devices)
    curves: list[Curve] = []
    for kind in _KINDS:
        found: dict[Role, list[Point]] = {sharding: [] for sharding in SHARDINGS}
        for place in places:
            progress(f"{kind} scaling on {place.name}")
            sized = case.with_batch(local * place.devices) if kind == "weak" and case.batch is not None else case
            for sharding, points in found.items():
                if (point := _point(sized, place, sharding)) is not None:
                    points.append(point)
        curves += _compared(kind, found, len(places))
    return tuple(curves)


def _places(family: str) -> list[Topology]:
    """Topologies of which each has at least four times the chips of the one before, and the largest."""
    found: list[Topology] = []
    every = [t for t in Topology.all(family) if t.chips <= MOST_CHIPS]
    for place in every:
        if not found or place.chips >= 4 * found[-1].chips or place is every[-1]:
            found.append(place)
    return found


def _point(case: Case, place: Topology, sharding: Role) -> Point | None:
    """A step on one topology; None where its batch does not split."""
    mesh = _mesh(place.devices, sharding)
    if (case.batch or 0) % mesh.get("data", 1):
        return None
    found = estimate(case.over(mesh, sharding).capture(), place)
    return Point(place, mesh, case.batch, found, found.memory.needed <= place.chip.hbm_bytes)


def _mesh(devices: int, sharding: str) -> dict[str, int]:
    """All devices for the batch, or up to `MODEL_AXIS` of them for the model and the rest for the batch."""
    model = min(devices, MODEL_AXIS) if sharding == "tensor" else 1
    axes = {"data": devices // model, "model": model}
    return {axis: size for axis, size in axes.items() if size > 1}


def _compared(kind: Kind, found: dict[Role, list[Point]], places: int) -> Iterator[Curve]:
    """Curves, with efficiencies against the best of the smallest topology."""
    firsts = [points[0] for points in found.values() if points]
    for sharding, points in found.items():
        best = [max((getattr(p, speed) for p in firsts), default=0.0) for speed in ("speed", "speed_without_overlap")]
        compared = [
            replace(p, efficiency=p.speed / best[0], efficiency_without_overlap=p.speed_without_overlap / best[1])
            for p in points
        ]
        if compared:
            ends = len(points) < places
            yield Curve(
                kind, sharding, tuple(compared), "it ends where the batch no longer splits evenly" if ends else ""
            )
