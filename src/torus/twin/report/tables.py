"""What a report shows, as tables of words; text and HTML set them each in their way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torus.twin.estimate import Estimate
from torus.twin.report.words import binary, change, decimal, seconds

if TYPE_CHECKING:
    from torus.twin.planning import Plan
    from torus.twin.scaling import Curve

MOST_ROWS = 12


@dataclass(frozen=True)
class Table:
    """A title, a heading, rows whose first cell names them, and a sentence below."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""
    words: bool = False
    """Whether the last column has words, not figures."""


def tables(plan: Plan) -> list[Table]:
    """Those that have rows, in the order of a report; scaling has pages of its own."""
    told = (_told(plan, table) for table in (collectives, operations, padding))
    return [table for table in (figures(plan), *told, advice(plan)) if table.rows]


def _told(plan: Plan, table: Callable[[Estimate], Table]) -> Table:
    """From the most certain answer that tells it."""
    *less, best = (table(estimate) for estimate in plan.estimates.values())
    return next((made for made in (best, *reversed(less)) if made.rows), best)


_FIGURES: tuple[tuple[str, Callable[[Estimate], str]], ...] = (
    ("HBM peak", lambda e: binary(e.memory.peak)),
    ("arguments", lambda e: binary(e.memory.arguments)),
    ("outputs that need their own memory", lambda e: binary(e.memory.outputs)),
    ("temporaries", lambda e: binary(e.memory.temporaries)),
    ("FLOPs", lambda e: decimal(e.flops, "FLOP")),
    ("HBM traffic", lambda e: binary(e.bytes)),
    ("arithmetic intensity", lambda e: f"{e.intensity:.1f} FLOP/B"),
    ("roofline bound (our estimate)", lambda e: seconds(e.roofline_seconds)),
    (
        "time (the compiler's estimate)",
        lambda e: "" if e.compiler_seconds is None else seconds(e.compiler_seconds),
    ),
    ("link time of collectives (our estimate)", lambda e: seconds(e.link_seconds) if e.collectives else ""),
    ("programs", lambda e: f"{e.programs:,}"),
    ("compile time", lambda e: seconds(e.compile_seconds) if e.compile_seconds else ""),
)


def figures(plan: Plan) -> Table:
    """Each quantity, a column for each certainty."""
    found = list(plan.estimates.values())
    rows = [(name, *(cell(estimate) for estimate in found)) for name, cell in _FIGURES]
    return Table("On each device", ("", *plan.estimates), [row for row in rows if any(row[1:])])


def collectives(estimate: Estimate) -> Table:
    """Exchanges between devices."""
    rows = [
        (c.kind, ", ".join(c.axes), f"{c.count:,}", binary(c.bytes), seconds(c.seconds))
        for c in sorted(estimate.collectives, key=lambda c: -c.seconds)
    ]
    head = ("exchange", "axes", "count", "bytes sent by a device", "link time")
    return Table("Collectives in a step", head, rows, estimate.certainty)


def operations(estimate: Estimate) -> Table:
    """Ops that dominate."""
    whole = estimate.local_seconds or estimate.roofline_seconds or 1.0
    rows = [
        (
            op.name,
            f"{op.count:,}",
            decimal(op.flops, "FLOP"),
            binary(op.bytes),
            seconds(op.seconds),
            _share(op.seconds / whole),
        )
        for op in estimate.ops[:MOST_ROWS]
    ]
    head = ("op", "count", "FLOPs", "HBM traffic", "lower bound", "share")
    return Table(
        "Where the time goes",
        head,
        rows,
        f"{estimate.certainty}; the longer of arithmetic and memory traffic, by op and by place in the model",
    )


def padding(estimate: Estimate) -> Table:
    """Work that fills up tiles."""
    rows = [
        (p.what, f"{p.count:,}", _share(p.waste), p.change)
        for p in sorted(estimate.padding, key=lambda p: -p.waste)[:MOST_ROWS]
    ]
    return Table("Padding", ("op", "count", "waste", "what would help"), rows, estimate.certainty, words=True)


def advice(plan: Plan) -> Table:
    """Changes, with figures before and after."""
    rows = []
    for c in plan.advice:
        before, after = c.before.memory.peak, c.after.memory.peak
        slow, fast = c.before_seconds, c.after_seconds
        memory = f"{binary(before)} -> {binary(after)} ({change(before, after)})"
        rows.append(
            (
                c.what,
                memory,
                f"{seconds(slow)} -> {seconds(fast)} ({change(slow, fast)})",
                "fits" if c.fits else "does not fit",
            )
        )
    head = ("change", "HBM peak of a device", f"time for each {'example' if plan.batch else 'step'}", "")
    return Table(
        "What would help", head, rows, "analytic estimates, of the step traced again with each change", words=True
    )


def curve(curve: Curve) -> Table:
    """One step over more and more chips."""
    rows = [
        (
            f"{p.topology.chips:,}",
            p.topology.name,
            "" if p.batch is None else f"{p.batch:,}",
            binary(p.estimate.memory.peak) + ("" if p.fits else " (does not fit)"),
            seconds(p.estimate.roofline_seconds),
            seconds(p.estimate.link_seconds),
            _share(p.efficiency),
            _share(p.efficiency_without_overlap),
        )
        for p in curve.points
    ]
    head = ("chips", "topology", "batch", "HBM peak", "step", "its links", "efficiency", "without overlap")
    return Table(curve.title, head, rows, curve.note)


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"
