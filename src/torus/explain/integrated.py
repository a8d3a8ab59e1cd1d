"""Integrated gradients over pieces that are cut until the result is known to be right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from torus.explain.function import Function
from torus.explain.methods import Attribution, Run, holding
from torus.explain.paths import Paths
from torus.explain.pieces import Array, Pieces
from torus.explain.points import Points, rows, unflat
from torus.explain.quadrature import gauss_kronrod
from torus.explain.references import References, as_references, mean


def _copies(pieces: int = 4, gauss: int = 7, most: int = 4096, **_: Any) -> int:
    """Points, gradients in chunks and as one, and weighed; the integrals of every call."""
    step = pieces * (2 * gauss + 1)
    return 4 * step + most * pieces // max(step, 1)  # options that do not fit are refused later


@holding(_copies)
def integrated_gradients(
    function: Function,
    points: Points,
    baselines: Points,
    run: Run,
    *,
    references: References = None,
    most: int = 4096,
    pieces: int = 4,
    gauss: int = 7,
) -> Attribution:
    """The mean gradient on the straight path from the baseline, times the way.

    Sundararajan, Taly, Yan: Axiomatic attribution for deep networks (2017). The path is cut into pieces, each
    integrated as a smooth function or as one that jumps (`torus.explain.quadrature`), whichever is surer. The worst are
    cut again until the completeness gap and the error of the quadrature are both under the tolerance, relative to the
    change that is explained, or under what rounding can do.

    Options:
        references: m baselines for every example, (m, ...) each, in the place of `baselines`; the result is the mean.
        most: gradients for each path at most; `verdict` says where they did not suffice.
        pieces: how many are measured in one call, an even number. With `gauss` it sets the one size of all calls.
        gauss: nodes of the Gauss rule within that of ``2 * gauss + 1``.
    """
    step, examples = pieces * (2 * gauss + 1), rows(points)
    if pieces < 2 or pieces % 2 or gauss < 2 or most < step:
        raise ValueError(f"pieces={pieces} is to be even, gauss={gauss} 2 or more, and most={most} here {step} or more")
    starts, ends = as_references(references, points, baselines)
    rule = gauss_kronrod(gauss)
    paths, known = Paths(function, starts, ends, rule), Pieces(rows(ends), rule.nodes.numpy())
    change = paths.change()
    found: list[torch.Tensor] = []
    history: list[tuple[int, float]] = []
    while True:
        low, width = known.cut(pieces) if found else known.whole(pieces)
        integrals, figures = paths.measure(*paths.upload(low, width))
        found.append(integrals)
        read, changes = _read(figures, change)
        known.add(low, width, read)
        quality = _Quality.of(known, changes, paths.epsilon, examples)
        history.append((len(found) * step, float(quality.relative.max())))
        run.progress(len(found) * step, most)
        if quality.enough(run.tolerance) or (len(found) + 1) * step > most:
            break
    return Attribution(
        attributions=unflat(mean(_sum(found, known.alive), examples), points),
        expected=mean(change, examples),
        error=torch.from_numpy(quality.error / quality.scale),
        verdict=quality.verdict(run.tolerance, len(found) * step),
        history=tuple(history),
    )


@dataclass(frozen=True)
class _Quality:
    """Of each example: completeness gap, error of the quadrature, what rounding can do, the change explained, (b,)."""

    gap: Array
    error: Array
    rounding: Array
    scale: Array

    @staticmethod
    def of(known: Pieces, changes: Array, epsilon: float, examples: int) -> _Quality:
        def average(of_paths: Array) -> Array:
            return of_paths.reshape(-1, examples).mean(0)

        gap, scale = np.abs(average(known.sums() - changes)), np.abs(average(changes))
        tiny = np.finfo(np.float32).tiny
        return _Quality(gap, average(known.errors()), average(known.rounding(epsilon)), np.maximum(scale, tiny))

    @property
    def relative(self) -> Array:
        """Gap or error, whichever is larger, relative to the change."""
        with np.errstate(invalid="ignore", over="ignore"):
            return np.maximum(self.gap, self.error) / self.scale

    def enough(self, tolerance: float) -> bool:
        """Whether more pieces cannot help, or nothing is left to help with."""
        left = np.maximum(self.gap, self.error) > np.maximum(tolerance * self.scale, self.rounding)
        return not left.any() or not np.isfinite(self.gap).all()

    def verdict(self, tolerance: float, gradients: int) -> str:
        """What did not come under the tolerance in the worst example, and why; "" where everything did."""
        if not (self.relative > tolerance).any() and np.isfinite(self.gap).all():
            return ""
        worst = int(np.argmax(np.where(np.isfinite(self.gap), self.relative, np.inf)))
        gap, error, rounding, scale = (float(of[worst]) for of in (self.gap, self.error, self.rounding, self.scale))
        figures = (
            f"example {worst}: completeness gap {gap:.2g}, quadrature error {error:.2g} of a change of {scale:.2g}, "
            f"tolerance {tolerance:.2g} of it, after {gradients} gradients for each path"
        )
        if not np.isfinite(gap):
            return f"the model or its gradient is not finite on the path; {figures}"
        if max(gap, error) <= rounding:
            return f"limited by rounding, which can make {rounding:.2g}; {figures}"
        return figures


def _read(figures: torch.Tensor, change: torch.Tensor) -> tuple[Array, Array]:
    """Both on the host, in one transfer."""
    read = torch.cat([figures.flatten(), change]).cpu().double().numpy()
    return read[: figures.numel()].reshape(figures.shape), read[figures.numel() :]


def _sum(found: list[torch.Tensor], alive: Array) -> torch.Tensor:
    """The sum over the living of n pieces, (q, e), in pairs of pairs; of a power of two of rounds, for few programs."""
    rounds = 1 << (len(found) - 1).bit_length()
    mask = np.zeros((rounds * len(found[0]), alive.shape[1], 1), bool)
    mask[: len(alive), :, 0] = alive
    every = torch.cat(found + found[:1] * (rounds - len(found)))
    total = torch.where(torch.from_numpy(mask).to(every.device), every, 0)
    while len(total) > 1:
        half = len(total) // 2
        total = torch.cat([total[:half] + total[half : 2 * half], total[2 * half :]])
    return total[0]
