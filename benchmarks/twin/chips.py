"""How the time of the TPU compiler grows with the chips: one block, its weights split over all of them."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.report import Figure, Result

GROUP = "twin-chips"
TOPOLOGIES = ("v5p:2x2x1", "v5p:4x4x4", "v5p:8x8x8")
MOST_GROWTH = 2.0
BLOCK = {"layers": 1, "width": 1024, "heads": 8, "tokens": 128, "vocabulary": 1024}


def run(rounds: int, quick: bool) -> Result:
    """Compile for each topology in turn, at least effort; nothing is kept."""
    places = TOPOLOGIES[:2] if quick else TOPOLOGIES
    samples: dict[str, list[float]] = {place: [] for place in places}
    for _ in range(1 if quick else rounds):
        for place, times in samples.items():
            times.append(_seconds(place, quick))
    medians = {place: statistics.median(times) for place, times in samples.items()}
    growth = medians[places[-1]] / medians[places[0]]
    figures = [Figure(GROUP, f"ratio of compile times, {places[-1]} / {places[0]}", growth, "x", MOST_GROWTH)]
    return Result(
        figures, ["topology", "compile time"], [[place, f"{time:.1f} s"] for place, time in medians.items()], samples
    )


def _seconds(place: str, quick: bool) -> float:
    import tempfile
    from pathlib import Path

    from torus.twin.compiler import Compiler
    from torus.twin.compiler.compiler import QUICK
    from torus.twin.topology import Topology

    topology = Topology.parse(place)
    with tempfile.TemporaryDirectory() as folder:
        compiler = Compiler(topology, Path(folder))
        compiler.environment()  # the process of the compiler starts here
        return compiler.compile(_step(topology.devices, quick), options=QUICK, executable=False).seconds


def _step(devices: int, quick: bool) -> str:
    from torus.twin.case import Case
    from torus.twin.examples import EXAMPLES

    sizes: dict[str, Any] = BLOCK | ({"width": 128, "tokens": 16} if quick else {})
    recipe = EXAMPLES["tiny-gpt"](batch=devices, **sizes)
    mesh = {"data": devices}
    case = Case(recipe["model"], recipe["inputs"], "train", recipe["loss"], mesh=mesh, sharding="fsdp")
    return case.capture().text
