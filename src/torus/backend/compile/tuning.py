"""``mode="max-autotune"``: a program is compiled in several ways, and the one that runs fastest is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from torus import runtime
from torus.runtime import target
from torus.runtime.jaxlib_adapter import dtype
from torus.runtime.programs import Aval, Program

CANDIDATES: dict[str, tuple[dict[str, Any], ...]] = {
    "cpu": (
        {},
        {"xla_cpu_use_fusion_emitters": False},
        {"xla_backend_optimization_level": 2},
    ),
    "cuda": ({}, {"xla_gpu_enable_latency_hiding_scheduler": True}),
}
"""Options to try by platform; where none are listed, the compiler's own choice stands."""
_RUNS = 5


def fastest(
    compile_with: Callable[[dict[str, Any]], Program], avals: Sequence[Aval], device: int, options: dict[str, Any]
) -> dict[str, Any]:
    """`options` with those of the candidate whose program takes the least time, the best of five runs on ones.

    Raises what the compiler raises for `options` alone; a candidate that this compiler does not know is left out.
    """
    times: list[tuple[float, int]] = []
    candidates = CANDIDATES.get(target.platform_name(), ({},))
    for number, candidate in enumerate(candidates):
        try:
            program = compile_with(options | candidate)
        except Exception:
            if not candidate:
                raise
            continue
        times.append((min(_seconds(program, avals, device) for _ in range(_RUNS)), number))
    return options | candidates[min(times)[1]]


def _seconds(program: Program, avals: Sequence[Aval], device: int) -> float:
    """One run, on new arguments, since a program may use them up."""
    arrays = [runtime.from_numpy(np.ones(shape, dtype(name)), device, copy=True) for shape, name in avals]
    runtime.block_until_ready(arrays)
    started = time.perf_counter()
    runtime.block_until_ready(program(arrays))
    return time.perf_counter() - started
