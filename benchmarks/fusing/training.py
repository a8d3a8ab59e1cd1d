"""Training steps: forward, backward and optimizer, a few of them and then a wait, with PyTorch's default settings.

Losses of the first steps, from the same parameters, are compared among all places. jax.jit is of one function that does
forward, backward and update, and gives its parameters up (`benchmarks.fusing.jax_steps`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import steps
from benchmarks.fusing import jax_steps
from benchmarks.fusing.residual import residual
from benchmarks.fusing.turns import CPU, FUSED, JAX, STRICT, Case, measure
from benchmarks.places import Place
from benchmarks.report import Result
from benchmarks.worker import Worker

GROUP = "fuse-step"
HEADS = 8
_EVERYWHERE = (FUSED, STRICT, *CPU, JAX)
MODELS: dict[str, tuple[Callable[[], tuple[Any, Any, Any]], str]] = {
    "MLP 64 wide, SGD": (steps.mlp, "SGD"),
    "MLP 512 wide, SGD": (lambda: steps.mlp(width=512, rows=128), "SGD"),
    "residual CNN, SGD": (residual, "SGD"),
    "GPT 256 wide, AdamW": (lambda: steps.gpt(layers=6, width=256, heads=HEADS, tokens=128, words=512), "AdamW"),
}
CASES = (
    Case("MLP 64 wide, SGD", 20, each=False, most_cpu=1.1),
    Case("MLP 512 wide, SGD", 10, each=False, places=_EVERYWHERE, most_cpu=0.85, most_jax=1.2),
    Case("residual CNN, SGD", 3, each=False, most_cpu=1.0),
    Case("GPT 256 wide, AdamW", 3, each=False, places=_EVERYWHERE, most_cpu=1.0, most_jax=1.2),
)
COMPARED = 5
"""Losses of so many first steps are compared."""


def work(place: Place, case: str, _quick: bool) -> Callable[[], Any]:
    """One step, which returns the loss."""
    import torch

    make, optimizer = MODELS[case]
    torch.manual_seed(0)
    model, x, y = make()
    if place.name == JAX:
        forward = jax_steps.gpt(HEADS) if optimizer == "AdamW" else jax_steps.mlp
        return jax_steps.training_step(forward, model, x, y, optimizer)
    return steps.training_step(model, x, y, optimizer, place.device)


def run(workers: Sequence[Worker], rounds: int, quick: bool) -> Result:
    """Measure; quick: the perceptrons only."""
    return measure(GROUP, __name__, CASES[: 2 if quick else None], workers, rounds, quick, COMPARED)
