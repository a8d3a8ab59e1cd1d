"""The mean of samples and how sure it is, in batches of one size."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Moments:
    """The mean of `count` samples and the sum of squares about it, both like the samples without their first dimension.

    Batches are joined in the order in which they come, so that the result is a function of the draws alone. Chan,
    Golub, LeVeque: Algorithms for computing the sample variance (1983).
    """

    count: int
    mean: torch.Tensor
    squares: torch.Tensor

    @staticmethod
    def of(samples: torch.Tensor) -> Moments:
        """Of samples (s, ...)."""
        mean = samples.mean(0)
        return Moments(len(samples), mean, (samples - mean).square().sum(0))

    def joined(self, other: Moments) -> Moments:
        """Of the samples of both."""
        count, apart = self.count + other.count, other.mean - self.mean
        return Moments(
            count,
            self.mean + apart * (other.count / count),
            self.squares + other.squares + apart**2 * (self.count * other.count / count),
        )

    @property
    def variance(self) -> torch.Tensor:
        """The unbiased estimate of the variance of one sample; infinite where there is only one."""
        if self.count < 2:
            return torch.full_like(self.squares, torch.inf)
        return self.squares / (self.count - 1)

    @property
    def standard_error(self) -> torch.Tensor:
        """That of the mean."""
        return (self.variance / self.count).sqrt()


def sample(
    draw: Callable[[], torch.Tensor],
    most: int,
    error: Callable[[Moments], torch.Tensor],
    tolerance: float,
    progress: Callable[[int], None],
    least: int = 1,
) -> tuple[Moments, torch.Tensor, tuple[tuple[int, float], ...]]:
    """Join what `draw` gives, (s, ...) each time, until `error`, (b,), is under the tolerance or there are `most`.

    It is looked at after `least` draws. Returns the moments, the last error on the host, and what it was after how many
    samples. One read a batch.
    """
    found = functools.reduce(Moments.joined, (Moments.of(draw()) for _ in range(least)))
    history: list[tuple[int, float]] = []
    while True:
        now = error(found).cpu()
        history.append((found.count, float(now.max())))
        progress(found.count)
        if not history[-1][1] > tolerance or found.count >= most:
            return found, now, tuple(history)
        found = found.joined(Moments.of(draw()))
