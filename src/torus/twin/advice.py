"""What would help a step that does not fit, or fit more into a step that does: each change is traced and estimated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from torus.twin.analytic import estimate
from torus.twin.case import Case, mesh_for
from torus.twin.estimate import Estimate
from torus.twin.sharding import roles
from torus.twin.topology import Topology

if TYPE_CHECKING:
    from torus.twin.planning import Plan

ENOUGH = 0.02
"""The least share of memory or time that counts as help, and how near the largest batch is found."""
MOST_TRIES = 12


@dataclass(frozen=True)
class Change:
    """One change, with analytic estimates before and after."""

    name: str
    what: str
    before: Estimate
    after: Estimate
    before_seconds: float
    """Of one example, or of the step where there is no batch; at the roofline bound."""
    after_seconds: float
    fits: bool
    """After it."""
    helps: bool


def advise(case: Case, plan: Plan, progress: Callable[[str], None]) -> Iterator[Change]:
    """Changes that help, each as soon as it is known."""
    before = plan.estimates["analytic"]
    for name, made in _CHANGES.items():
        progress(f"what if: {name}")
        try:
            found = made(case, plan.topology, before)
        except (RuntimeError, ValueError, TypeError) as error:
            progress(f"{name} cannot be tried: {str(error).splitlines()[0]}")
            continue
        if found is not None:
            change = _change(name, case, before, plan.topology, *found)
            if change.helps:
                yield change


_Found = tuple[str, Case, Topology]
"""The change in words, the case with it, where it runs."""


def _change(
    name: str, case: Case, before: Estimate, old: Topology, what: str, changed: Case, topology: Topology
) -> Change:
    after = estimate(changed.capture(), topology)
    slow, fast = (e.roofline_seconds / (c.batch or 1) for e, c in ((before, case), (after, changed)))
    fitted, fits = (e.memory.needed <= t.chip.hbm_bytes for e, t in ((before, old), (after, topology)))
    less = after.memory.needed < before.memory.needed * (1 - ENOUGH) or fast < slow * (1 - ENOUGH)
    helps = fits >= fitted and (less or fits > fitted or name in ("batch", "topology"))
    return Change(name, what, before, after, slow, fast, fits, helps)


def _batch(case: Case, topology: Topology, before: Estimate) -> _Found | None:
    """The largest that fits."""
    if case.batch is None:
        return None
    largest = largest_batch(case, topology, before)
    if largest is None or largest == case.batch:
        return None
    return f"batch {largest:,}, the largest that fits, instead of {case.batch:,}", case.with_batch(largest), topology


def largest_batch(case: Case, topology: Topology, known: Estimate) -> int | None:
    """The largest batch that fits, up to 2 %; None where none does, or memory does not grow with it.

    Memory is nearly a line in the batch, so each try is where the line through the last two meets what there is.
    """
    assert case.batch is not None
    unit, room = _unit(case), topology.chip.hbm_bytes
    first = max(1, case.batch // unit)
    peaks = {first: known.memory.needed}
    fitting, over = (first, None) if peaks[first] <= room else (0, first)
    guess = 2 * first if fitting else max(1, first // 2)
    for _ in range(MOST_TRIES):
        if guess not in peaks:
            peaks[guess] = estimate(case.with_batch(guess * unit).capture(), topology).memory.needed
        if peaks[guess] <= room:
            fitting = max(fitting, guess)
        else:
            over = guess if over is None else min(over, guess)
        if over is not None and over - fitting <= max(1, int(ENOUGH * fitting)):
            break
        slope = _slope(peaks)
        if slope <= 0:
            return None
        nearest = max((n for n in peaks if peaks[n] <= room), default=min(peaks))
        guess = nearest + int((room - peaks[nearest]) / slope)
        guess = max(fitting + 1, guess if over is None else min(over - 1, guess))
    return fitting * unit or None


def _slope(peaks: dict[int, int]) -> float:
    """Bytes for each unit of the batch, between the two largest that were tried."""
    small, large = sorted(peaks)[-2:]
    return (peaks[large] - peaks[small]) / (large - small)


def _unit(case: Case) -> int:
    """Over how many devices the batch is split."""
    spec = next((a.spec for a in case.capture().arguments if a.kind == "input" and a.shape), ())
    return prod(case.mesh[axis] for axis in spec[0]) if spec else 1


def _topology(case: Case, topology: Topology, before: Estimate) -> _Found | None:
    """The smallest of its family that the step fits on."""
    places = [t for t in Topology.all(topology.chip.family) if mesh_for(t, case.mesh) is not None]
    low, high = 0, len(places)
    while low < high:
        middle = (low + high) // 2
        place = places[middle]
        peak = estimate(case.over(mesh_for(place, case.mesh) or {}).capture(), place).memory.needed
        low, high = (low, middle) if peak <= place.chip.hbm_bytes else (middle + 1, high)
    if low == len(places) or places[low].devices == topology.devices:
        return None
    found = places[low]
    return f"{found.name}, the smallest that it fits on", case.over(mesh_for(found, case.mesh) or {}), found


def _bfloat16(case: Case, topology: Topology, before: Estimate) -> _Found | None:
    changed = case.in_bfloat16()
    return None if changed is None else ("parameters and inputs in bfloat16", changed, topology)


def _remat(case: Case, topology: Topology, before: Estimate) -> _Found | None:
    changed = case.rematerialised()
    return None if changed is None else ("activation checkpointing of each layer", changed, topology)


def _logits(case: Case, topology: Topology, before: Estimate) -> _Found | None:
    changed = case.keeping_logits()
    return None if changed is None else ("logits_to_keep=1: scores of the last position only", changed, topology)


def _fsdp(case: Case, topology: Topology, before: Estimate) -> _Found | None:
    if set(roles(case.mesh, case.sharding).values()) != {"data"}:
        return None
    return "parameters split over the devices (fsdp)", case.over(case.mesh, "fsdp"), topology


_CHANGES: dict[str, Callable[[Case, Topology, Estimate], _Found | None]] = {
    "bfloat16": _bfloat16,
    "remat": _remat,
    "logits_to_keep": _logits,
    "fsdp": _fsdp,
    "batch": _batch,
    "topology": _topology,
}
