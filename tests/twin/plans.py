"""Plans made by hand."""

from __future__ import annotations

from dataclasses import replace

from torus.twin.advice import Change
from torus.twin.estimate import Collective, Estimate, Memory, OpCost, Padding
from torus.twin.planning import Answer, Plan, verdict
from torus.twin.scaling import Curve, Point
from torus.twin.topology import Topology

GIB = 2**30


def estimate(peak: float = 10.0, certainty: str = "analytic", seconds: float = 0.02) -> Estimate:
    """With a peak in GiB. The compiler's answers say neither what dominates nor what is padding."""
    ops = (OpCost("dot_general 8x128x<script>", 24, 3e12, 6 * GIB, 0.012), OpCost("optimizer", 2, 1e9, GIB, 0.001))
    waste = Padding("dot_general 4x12x128x64", 12, 0.5, "heads of 128 instead of 64: 2.0x of the work is used")
    return Estimate(
        certainty=certainty,  # type: ignore[arg-type]
        memory=Memory(int(4 * GIB), int(0.5 * GIB), int((peak - 4.5) * GIB), int(peak * GIB)),
        flops=3.5e12,
        bytes=8 * GIB,
        roofline_seconds=seconds,
        local_seconds=seconds,
        compiler_seconds=None if certainty == "analytic" else 0.03,
        collectives=(Collective("all-reduce", ("data",), 12, GIB, 0.004),),
        ops=ops if certainty == "analytic" else (),
        padding=(waste,) if certainty == "analytic" else (),
        compile_seconds=0.0 if certainty == "analytic" else 31.0,
        notes=("Collectives and arithmetic overlap.",),
    )


def plan(*peaks: float, topology: str = "v6e:2x2") -> Plan:
    """With one answer a peak, of growing certainty."""
    place = Topology.parse(topology)
    found = [estimate(peak, certainty) for peak, certainty in zip(peaks, ("analytic", "composed", "exact"))]
    answers = tuple(Answer(e.certainty, 1.5, e, verdict(e, place)) for e in found)
    return Plan("Tiny <b>", "train", place, {"data": 4}, "data", 32, answers)


def full(*peaks: float) -> Plan:
    """With advice and scaling too."""
    before, after = estimate(40), estimate(20, seconds=0.01)
    change = Change("bfloat16", "parameters and inputs in bfloat16", before, after, 2e-3, 1e-3, True, True)
    points = [
        Point(Topology.parse(name), {}, 8 * size, estimate(10), size > 1, 1 - size / 100, 0.9 - size / 100)
        for name, size in (("v6e:1x1", 1), ("v6e:2x2", 4), ("v6e:4x4", 16))
    ]
    curves = [Curve("weak", "data", tuple(points)), Curve("strong", "fsdp", tuple(points[:2]), "it ends there")]
    return replace(plan(*peaks), advice=(change,), scaling=tuple(curves))
