"""Training steps under torch.compile: time to compile, and of a warm step, beside Inductor, CPU eager and jax.jit.

The whole step is given to torch.compile, which enters three compiled regions: forward, backward, and the optimizer's
step; torch.tpu.compiler.train_step makes one program of it. jax.jit is of one hand-written function that does all of it
and gives its parameters up.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import steps
from benchmarks.fusing import jax_steps
from benchmarks.fusing.residual import residual
from benchmarks.places import TITLES, Place
from benchmarks.report import Figure, Result, ratio, spread
from benchmarks.worker import Worker, in_turn

GROUP = "compile-step"
COMPILED, ONE, INDUCTOR, JAX = "tpu_compiled", "tpu_step", "inductor", "jax"
CPU = ("cpu", "cpu_threads")
PLACES = (COMPILED, ONE, JAX, INDUCTOR, *CPU)
HEADS = 8
MODELS: dict[str, tuple[Callable[[], tuple[Any, Any, Any]], str, Callable[..., Any], int]] = {
    "MLP 512 wide, SGD": (lambda: steps.mlp(width=512, rows=128), "SGD", jax_steps.mlp, 10),
    "residual CNN, SGD": (residual, "SGD", jax_steps.residual, 3),
    "GPT 256 wide, AdamW": (
        lambda: steps.gpt(layers=6, width=256, heads=HEADS, tokens=128, words=512),
        "AdamW",
        jax_steps.gpt(HEADS),
        3,
    ),
}
"""Model, optimizer, the model in jax, and steps to a sample."""
MOST_JAX, MOST_INDUCTOR, MOST_CPU, MOST_COMPILE = 1.10, 1.0, 1.0, 1.0
REGIONS, REGION_MICROSECONDS = 3, 40
MOST_DIFFERENCE = 1e-3


@functools.lru_cache(maxsize=1)
def _prepared(place: Place, case: str) -> Callable[[], Any]:
    import torch

    make, optimizer, forward, _ = MODELS[case]
    torch.manual_seed(0)
    model, x, y = make()
    if place.name == JAX:
        return jax_steps.training_step(forward, model, x, y, optimizer)
    if place.name == ONE:
        return _one_program(model.to("tpu"), x.to("tpu"), y.to("tpu"), optimizer)
    step = steps.training_step(model, x, y, optimizer, place.device)
    if place.name in (COMPILED, INDUCTOR):
        return torch.compile(step, backend="tpu" if place.name == COMPILED else "inductor")
    return step


def _one_program(model: Any, x: Any, y: Any, optimizer: str) -> Callable[[], Any]:
    import torch

    made = getattr(torch.optim, optimizer)(model.parameters(), lr=steps.LEARNING_RATE)
    step = torch.tpu.compiler.train_step(model, made, lambda m, x, y: torch.nn.functional.cross_entropy(m(x), y))
    return lambda: step(x, y)


def _wait(place: Place, result: Any) -> None:
    if place.name == JAX:
        result.block_until_ready()
    else:
        place.synchronize()


def first(place: Place, case: str) -> dict[str, float]:
    """Seconds of the first two steps, in which all is compiled, and the loss of the second."""
    started = time.perf_counter()
    call = _prepared(place, case)
    for _ in range(2):
        result = call()
        _wait(place, result)
    return {"seconds": time.perf_counter() - started, "loss": float(result)}


def sample(place: Place, case: str, number: int) -> float:
    """Microseconds of a step, the mean of `number`, waited for together."""
    call = _prepared(place, case)
    started = time.perf_counter()
    for _ in range(number):
        result = call()
    _wait(place, result)
    return 1e6 * (time.perf_counter() - started) / number


def run(workers: Sequence[Worker], rounds: int, quick: bool) -> Result:
    """Measure; quick: the perceptron only. Compile times are of one call each, of a cache that is empty."""
    figures: list[Figure] = []
    rows, samples = [], {}
    for case in list(MODELS)[: 1 if quick else None]:
        firsts = {w.place or "": w.call("benchmarks.compiling.training:first", case=case) for w in workers}
        number = 1 if quick else MODELS[case][3]
        for worker in workers:
            worker.call("benchmarks.compiling.training:sample", case=case, number=number)
        times = in_turn(workers, rounds, "benchmarks.compiling.training:sample", case=case, number=number)
        samples[case] = {"first": firsts, "warm": times}
        rows.append([f"{case}, a warm step", *(spread(times[place], "us") for place in PLACES)])
        rows.append([f"{case}, first two steps", *(f"{firsts[place]['seconds']:.1f} s" for place in PLACES)])
        figures += _figures(case, firsts, times)
    return Result(figures, [GROUP, *(TITLES[place] for place in PLACES)], rows, samples)


def _figures(case: str, firsts: dict[str, dict[str, float]], times: dict[str, list[float]]) -> list[Figure]:
    faster = min(CPU, key=lambda place: statistics.median(times[place]))
    allowed = MOST_JAX + REGIONS * _region(times)
    losses = {place: found["loss"] for place, found in firsts.items()}
    difference = max(abs(loss - losses[CPU[0]]) for loss in losses.values()) / abs(losses[CPU[0]])
    compile_ratio = firsts[COMPILED]["seconds"] / firsts[INDUCTOR]["seconds"]
    return [
        ratio(GROUP, f"ratio compiled / jax.jit, {case}", times[COMPILED], times[JAX], allowed),
        ratio(GROUP, f"ratio one program / jax.jit, {case}", times[ONE], times[JAX], MOST_JAX + _region(times)),
        ratio(GROUP, f"ratio one program / {TITLES[faster]}, {case}", times[ONE], times[faster], MOST_CPU),
        ratio(GROUP, f"ratio compiled / Inductor, {case}", times[COMPILED], times[INDUCTOR], MOST_INDUCTOR),
        ratio(GROUP, f"ratio compiled / {TITLES[faster]}, {case}", times[COMPILED], times[faster], MOST_CPU),
        Figure(GROUP, f"ratio of the first two steps to Inductor's, {case}", compile_ratio, "x", MOST_COMPILE),
        Figure(GROUP, f"largest difference of a second loss from CPU eager's, {case}", difference, "", MOST_DIFFERENCE),
    ]


def _region(times: dict[str, list[float]]) -> float:
    """What entering one compiled region may cost, as a part of jax.jit's step."""
    return REGION_MICROSECONDS / statistics.median(times[JAX])
