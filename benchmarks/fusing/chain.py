"""A hundred ops in a row, to completion: elementwise, matmul and reduction, and elementwise alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.fusing.turns import CPU, FUSED, JAX, STRICT, Case, measure
from benchmarks.places import Place
from benchmarks.report import Result
from benchmarks.worker import Worker

GROUP = "fuse-chain"
_EVERYWHERE = (FUSED, STRICT, *CPU, JAX)
CASES = (
    Case("mixed ops, 32x32", 20, places=_EVERYWHERE, most_cpu=1.0, most_jax=3.5),
    Case("mixed ops, 512x512", 3, places=_EVERYWHERE, most_cpu=0.4, most_jax=1.2),
    Case("elementwise ops, 32x32", 20, places=_EVERYWHERE),
    Case("elementwise ops, 512x512", 5, places=_EVERYWHERE),
)
TURNS = 20
GAIN = 2.0
"""Of one matmul. With less, results are those of rounding; with more, rounding grows from turn to turn."""


def mixed(x: Any, w: Any, tanh: Callable[[Any], Any]) -> Any:
    """The same for tensors and for jax's arrays; `tanh` is the library's."""
    for _ in range(TURNS):
        x = x + 1
        x = x * 0.5
        x = tanh(x)
        x = x @ w
        x = x - x.mean(0)
    return x


def elementwise(x: Any, w: Any, tanh: Callable[[Any], Any]) -> Any:
    for _ in range(TURNS):
        x = x + 1
        x = x * 0.5
        x = tanh(x)
        x = x * w
        x = x - w
    return x


def work(place: Place, case: str, _quick: bool) -> Callable[[], Any]:
    """One chain, on numbers that are the same everywhere."""
    import torch

    kind, size = case.split(", ")
    side = int(size.partition("x")[0])
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(side, side, generator=generator)
    w = torch.randn(side, side, generator=generator) * (GAIN / side**0.5)
    chain = mixed if kind == "mixed ops" else elementwise
    if place.name != JAX:
        x, w = x.to(place.device), w.to(place.device)
        return lambda: chain(x, w, torch.tanh)
    import jax

    jitted = jax.jit(lambda x, w: chain(x, w, jax.numpy.tanh))
    a, b = jax.numpy.asarray(x.numpy()), jax.numpy.asarray(w.numpy())
    return lambda: jitted(a, b)


def run(workers: Sequence[Worker], rounds: int, quick: bool) -> Result:
    """Measure; quick: the small mixed one only."""
    return measure(GROUP, __name__, CASES[: 1 if quick else None], workers, rounds, quick)
