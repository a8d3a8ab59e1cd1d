"""A guard against matrix products that are too coarse for the tolerance."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from torus.backend import device as tpu
from torus.explain.function import Function
from torus.explain.points import Points, each

HIGHEST = "highest"
ACTIONS = ("switch", "refuse", "ignore")
PARTS = (0.25, 0.5, 1.0)
"""Where on the way from the baselines to the inputs gradients are compared."""


@dataclass(frozen=True)
class Guarded:
    """What a method runs in, in words, and how far the gradients of the precision that was set are from those of the
    highest: the largest difference in units of an example's largest element. None where the highest was set.
    """

    precision: str
    error: float | None = None


class LowPrecision(ValueError):
    """Gradients in the precision that is set are further from the highest than the tolerance."""


def current(device: torch.device) -> str:
    """The precision of float32 matrix products on a device now."""
    return tpu.get_precision().name.lower() if device.type == "tpu" else torch.get_float32_matmul_precision()


@contextlib.contextmanager
def highest(device: torch.device) -> Iterator[None]:
    """The highest precision of matrix products on a device in the block."""
    if device.type == "tpu":
        with tpu.precision(HIGHEST):
            yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(HIGHEST)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextlib.contextmanager
def guarded(
    function: Function, points: Points, baselines: Points, tolerance: float, action: str = "switch"
) -> Iterator[Guarded]:
    """Run the block in a precision whose gradients are within the tolerance of the highest, at a few fixed points.

    `action` says what happens where they are not: "switch" to the highest for the block, "refuse" with `LowPrecision`,
    or "ignore", which only records it. Raises ValueError for any other.
    """
    if action not in ACTIONS:
        raise ValueError(f"on_low_precision is one of {', '.join(ACTIONS)}, not {action!r}")
    device = points[0].device
    precision = current(device)
    if precision == HIGHEST or all(tensor.dtype == torch.float64 for tensor in points):
        yield Guarded(precision)
        return
    error = difference(function, points, baselines)
    if error <= tolerance or action == "ignore":
        yield Guarded(precision, error)
        return
    if action == "refuse":
        raise LowPrecision(
            f"gradients in {precision!r} precision are {error:.2g} from those in the highest, and the tolerance is "
            f'{tolerance:.2g}; on_low_precision="switch" runs in the highest'
        )
    with highest(device):
        yield Guarded(f"{HIGHEST}, switched from {precision}", error)


def difference(function: Function, points: Points, baselines: Points) -> float:
    """How far gradients now are from those in the highest precision; NaN counts as far."""
    probes = each(lambda x, b: torch.cat([b + part * (x - b) for part in PARTS]), points, baselines)
    _, now = function.grad(probes)
    with highest(points[0].device):
        _, exact = function.grad(probes)
    apart = torch.stack([(a - b).abs().flatten(1).amax(1) for a, b in zip(now, exact, strict=True)]).amax(0)
    scale = torch.stack([b.abs().flatten(1).amax(1) for b in exact]).amax(0)
    found = apart / scale.clamp_min(torch.finfo(scale.dtype).tiny)
    return float(found.nan_to_num(nan=torch.inf).cpu().max())
