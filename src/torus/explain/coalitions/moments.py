"""Mean and standard error of samples that come in groups."""

from __future__ import annotations

import torch


class Moments:
    """Running mean and standard error over the first dimension of what is added.

    Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances (1979).
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.zeros(())
        self._squares = torch.zeros(())

    def add(self, samples: torch.Tensor) -> None:
        """Samples (n, ...), n > 0."""
        count = self.count + len(samples)
        mean = samples.mean(0)
        delta = mean - self.mean
        self._squares = (
            self._squares + (samples - mean).square().sum(0) + delta.square() * (self.count * len(samples) / count)
        )
        self.mean = self.mean + delta * (len(samples) / count)
        self.count = count

    def standard_error(self) -> torch.Tensor:
        """Of the mean; infinite where there is one sample only."""
        if self.count < 2:
            return torch.full_like(self.mean, torch.inf)
        return (self._squares / (self.count - 1) / self.count).sqrt()
