"""A step's estimate from the TPU compiler's result for each distinct block of it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torus.twin.blocks import Block, Cut
from torus.twin.compiler.compiler import QUICK, Compiler
from torus.twin.compiler.errors import CompileTimeout
from torus.twin.compiler.exact import estimate_of
from torus.twin.estimate import Collective, Estimate, Memory
from torus.twin.step import Step
from torus.twin.topology import Topology

Progress = Callable[[str], None]


def compose(
    step: Step,
    topology: Topology,
    compiler: Compiler,
    budget: float,
    progress: Progress = lambda words: None,
    *,
    options: Mapping[str, Any] = QUICK,
) -> Estimate:
    """What the blocks of a step need and take, added up; each distinct one is compiled once and kept on disk.

    budget: seconds for the compiler. The blocks that it does not get to have their figures from the analytic model,
    which a note says. options: the compiler's; with those of `QUICK` it takes about an eighth of the time, and its
        programs need more memory than those of its full effort, which `exact` reports.

    Raises CompilerMissing, and CompileError for what the compiler refuses: DoesNotFit for a block that needs more
    memory than there is.
    """
    quick = dict(options) == QUICK
    cut = Cut(step, quick)
    known = _Figures(cut, topology, compiler, time.perf_counter() + budget, progress, dict(options))
    parts = [known.of[block.step.text] for block in cut.blocks]
    notes = [f"Added up from {len(parts)} blocks of {len(known.of)} kinds; fusions across their borders are left out."]
    if quick:
        notes.append("Compiled with little effort (EFFORT_O0): a program of full effort may need less memory and time.")
    if known.guessed:
        kinds = f"{len(known.guessed)} of {len(known.of)} kinds of blocks"
        notes.append(f"{kinds} have analytic figures: the budget ended before them.")
    asked = (part for block, part in known.of.items() if block not in known.guessed)
    notes += dict.fromkeys(note for part in asked for note in part.notes)
    times = [t for p in parts if (t := p.compiler_seconds) is not None]
    local = [t for p in parts if (t := p.local_seconds) is not None]
    return Estimate(
        certainty="composed",
        memory=memory(cut, parts),
        flops=sum(p.flops for p in parts),
        bytes=sum(p.bytes for p in parts),
        roofline_seconds=sum(p.roofline_seconds for p in parts),
        local_seconds=sum(local) if len(local) == len(parts) else None,
        compiler_seconds=sum(times) if len(times) == len(parts) else None,
        collectives=_collectives(parts),
        programs=len(known.of),
        compile_seconds=sum(p.compile_seconds for p in known.of.values()),
        notes=tuple(notes),
    )


class _Figures:
    """The estimate of each distinct block, by its text; those of the `guessed` are not the compiler's."""

    def __init__(
        self, cut: Cut, topology: Topology, compiler: Compiler, end: float, progress: Progress, options: dict[str, Any]
    ) -> None:
        self.topology, self.compiler, self.end, self.options = topology, compiler, end, options
        self.guessed: set[str] = set()
        self.of: dict[str, Estimate] = {}
        distinct = {block.step.text: block for block in cut.blocks}
        ordered = sorted(distinct.values(), key=lambda b: -cut.counts[b.step.text] * len(b.step.places))
        for number, block in enumerate(ordered, 1):
            times = cut.counts[block.step.text]
            words = f"block {number} of {len(ordered)}: {block.place or 'between layers'}"
            progress(f"{words}, {len(block.step.places)} ops" + (f", {times} times" if times > 1 else ""))
            self.of[block.step.text] = self._of(block)

    def _of(self, block: Block) -> Estimate:
        left = self.end - time.perf_counter()
        step = block.step
        try:
            if left <= 0 and not self.compiler.is_known(step.text, options=self.options):
                raise CompileTimeout("the budget has ended")
            compiled = self.compiler.compile(step.text, options=self.options, timeout=max(left, 1.0), executable=False)
        except CompileTimeout:
            from torus.twin.analytic import estimate

            self.guessed.add(step.text)
            return replace(estimate(step, self.topology), compile_seconds=0.0)
        return estimate_of(compiled, step, self.topology)


def memory(cut: Cut, parts: list[Estimate]) -> Memory:
    """Arguments and results of the step, and the most that is needed beside them.

    While a block runs, there are what enters and leaves it, its temporaries, and the values that were made before it
    and are used after it.
    """
    arguments = sum(map(cut.bytes, cut.arguments))
    outputs = sum(cut.bytes(v) for v in set(cut.returns) if v not in cut.reuses and v not in cut.arguments)
    placed = {*cut.arguments, *cut.returns}
    last = {v: number for number, block in enumerate(cut.blocks) for v in block.enters}
    made = {v: number for number, block in enumerate(cut.blocks) for v in block.leaves}
    peak = 0
    for number, (block, part) in enumerate(zip(cut.blocks, parts, strict=True)):
        own = {*block.enters, *block.leaves}
        through = (v for v in made if v not in own and made[v] < number < last.get(v, -1))
        alive = sum(cut.bytes(v) for v in {*own, *through} - placed)
        peak = max(peak, alive + part.memory.temporaries)
    return Memory(arguments, outputs, peak, arguments + outputs + peak)


def _collectives(parts: list[Estimate]) -> tuple[Collective, ...]:
    found: dict[tuple[str, tuple[str, ...]], list[Collective]] = defaultdict(list)
    for part in parts:
        for each in part.collectives:
            found[each.kind, each.axes].append(each)
    return tuple(
        Collective(kind, axes, sum(e.count for e in all_), sum(e.bytes for e in all_), sum(e.seconds for e in all_))
        for (kind, axes), all_ in found.items()
    )
