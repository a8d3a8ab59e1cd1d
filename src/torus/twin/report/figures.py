"""Pictures of a plan: how the memory fills, and how efficiency falls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torus.explain.report.drawing import LINE, SOFT, Box, Drawing, Label, Lines
from torus.twin.report.words import binary

if TYPE_CHECKING:
    from torus.twin.estimate import Memory
    from torus.twin.planning import Plan
    from torus.twin.scaling import Curve, Kind

COLOURS = {"data": "#4285d6", "fsdp": "#e67e22", "tensor": "#2a9d6f"}
_PARTS = (("arguments", "#4285d6"), ("outputs", "#2a9d6f"), ("temporaries", "#e67e22"))
_RED = "#c22f2f"
WIDTH, ROW, NAME = 860.0, 34.0, 84.0
PLOT, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 460.0, 280.0, 48.0, 16.0, 34.0, 44.0


def memory(plan: Plan) -> Drawing:
    """A bar for each certainty: what the peak is made of, beside the capacity of a device."""
    capacity = plan.topology.chip.hbm_bytes
    found = plan.estimates
    reach = 1.12 * max([capacity, *(e.memory.peak for e in found.values())])
    drawing = Drawing(WIDTH, ROW * len(found) + 46)

    def across(count: float) -> float:
        return NAME + (WIDTH - NAME - 8) * count / reach

    for row, (certainty, estimate) in enumerate(found.items()):
        y, start = 22 + row * ROW, 0.0
        drawing.add(Label(0, y + 16, certainty, 13, SOFT))
        for size, colour in _parts(estimate.memory):
            drawing.add(Box(across(start), y, max(0.0, across(start + size) - across(start)), 22, colour))
            start += size
        end = across(max(estimate.memory.peak, capacity if estimate.memory.peak > 0.85 * capacity else 0))
        drawing.add(Label(end + 6, y + 16, binary(estimate.memory.peak), 12, SOFT))
    end = 22 + ROW * len(found)
    drawing.add(
        Lines([(across(capacity), 14), (across(capacity), end)], _RED, 2),
        Label(across(capacity), 10, f"{binary(capacity)} of HBM", 12, SOFT, "end"),
    )
    for place, (name, colour) in enumerate(_PARTS):
        x = NAME + 120 * place
        drawing.add(Box(x, end + 6, 11, 11, colour), Label(x + 16, end + 16, name, 12, SOFT))
    return drawing


def _parts(memory: Memory) -> list[tuple[float, str]]:
    """Sizes and colours whose sum is the peak: it has the arguments, and of the rest what it has room for."""
    left, found = memory.peak, []
    for name, colour in _PARTS:
        size = min(left, getattr(memory, name))
        found.append((size, colour))
        left -= size
    return [*found[:-1], (found[-1][0] + left, found[-1][1])]


def efficiency(curves: Sequence[Curve], kind: Kind) -> Drawing:
    """Efficiency against chips for each sharding, with overlap as a line and without as a thin one."""
    chosen = [curve for curve in curves if curve.kind == kind]
    chips = sorted({p.topology.chips for curve in chosen for p in curve.points})
    top = max([1.0, *(p.efficiency for curve in chosen for p in curve.points)])
    drawing = Drawing(PLOT, HEIGHT)

    def across(count: int) -> float:
        return LEFT + (PLOT - LEFT - RIGHT) * math.log(count / chips[0]) / math.log(max(2, chips[-1] / chips[0]))

    def down(share: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share / top)

    for tenth in range(0, int(top * 10) + 1, 2 if top < 2 else 5):
        y = down(tenth / 10)
        drawing.add(
            Lines([(LEFT, y), (PLOT - RIGHT, y)], LINE), Label(LEFT - 6, y + 4, f"{10 * tenth} %", 12, SOFT, "end")
        )
    for count in chips:
        drawing.add(Label(across(count), HEIGHT - BOTTOM + 16, f"{count}", 12, SOFT, "middle"))
    for place, curve in enumerate(chosen):
        colour = COLOURS[curve.sharding]
        bare = [(across(p.topology.chips), down(p.efficiency_without_overlap)) for p in curve.points]
        points = [(across(p.topology.chips), down(p.efficiency)) for p in curve.points]
        drawing.add(Lines(bare, colour, 0.8), Lines(points, colour, 2.2))
        drawing.add(
            *(Box(x - 2.5, y - 2.5, 5, 5, colour if p.fits else _RED) for (x, y), p in zip(points, curve.points))
        )
        drawing.add(
            Box(LEFT + 90 * place, 6, 11, 11, colour), Label(LEFT + 90 * place + 16, 16, curve.sharding, 12, SOFT)
        )
    drawing.add(Label((LEFT + PLOT - RIGHT) / 2, HEIGHT - 8, "chips", 12, SOFT, "middle"))
    return drawing
