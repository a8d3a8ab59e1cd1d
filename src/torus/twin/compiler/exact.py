"""What the TPU compiler says of a whole step: it is the program that a chip would run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torus.twin.analytic import estimate as analytic
from torus.twin.compiler.collectives import collectives
from torus.twin.compiler.compiled import Compiled
from torus.twin.compiler.compiler import Compiler
from torus.twin.estimate import Estimate, Memory
from torus.twin.step import Step
from torus.twin.topology import Topology

_UNREAD = "Of some programs the compiler's own text cannot be had: their exchanges are those of the analytic model."
_LOOPS = "The compiler counts the operations and the exchanges in a loop's body once."


def exact(
    step: Step,
    topology: Topology,
    compiler: Compiler,
    *,
    options: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> Estimate:
    """The estimate of a step from its compiled program. Raises what `Compiler.compile` raises."""
    return estimate_of(compiler.compile(step.text, options=options, timeout=timeout), step, topology)


def estimate_of(compiled: Compiled, step: Step, topology: Topology) -> Estimate:
    """The same from a program that is compiled."""
    flops, moved = compiled.cost.get("flops", 0.0), compiled.cost.get("bytes accessed", 0.0)
    if compiled.hlo:
        exchanged = collectives(compiled.hlo, step.mesh, topology)
        notes = (_LOOPS,) if " while(" in compiled.hlo else ()
    else:  # libtpu writes instructions that an older XLA, that of jaxlib, does not know
        exchanged, notes = analytic(step, topology).collectives, (_UNREAD,)
    peak = topology.chip.flops["bfloat16"]
    seconds = compiled.cost.get("optimal_seconds", -1.0)
    return Estimate(
        certainty="exact",
        memory=memory_of(compiled),
        flops=flops,
        bytes=moved,
        roofline_seconds=max(
            flops / peak, moved / topology.chip.hbm_bandwidth, sum(each.seconds for each in exchanged)
        ),
        compiler_seconds=seconds if seconds >= 0 else None,  # it says below 0 where it does not know
        collectives=exchanged,
        compile_seconds=compiled.seconds,
        notes=notes,
    )


def memory_of(compiled: Compiled) -> Memory:
    """The compiler's ``memory_analysis``. Arguments, results and temporaries have their places for the whole program,
    so what must be free is their sum; its ``peak_memory_in_bytes`` counts the memory on the chip's cores, too.
    """
    arguments, outputs, alias, temporaries = (
        compiled.memory[f"{name}_size_in_bytes"] for name in ("argument", "output", "alias", "temp")
    )
    return Memory(arguments, outputs - alias, temporaries, arguments + outputs - alias + temporaries)
