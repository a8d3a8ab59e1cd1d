"""Coalitions drawn without replacement, size by size: the design of a weighted regression over coalitions."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import torch

SAMPLINGS = ("leverage", "kernel")


@dataclass
class Stratum:
    """The coalitions of `size` among `features`; `half` has only those with feature 0, one of each complementary pair.

    Drawn in one fixed order, so that a longer draw starts with a shorter one.
    """

    features: int
    size: int
    half: bool
    seed: int
    _drawn: list[torch.Tensor] = field(default_factory=list)
    _seen: set[bytes] = field(default_factory=set)
    _generator: torch.Generator | None = None

    @property
    def population(self) -> int:
        """How many coalitions there are."""
        return math.comb(self.features - self.half, self.size - self.half)

    @property
    def mass(self) -> float:
        """The Shapley kernel's weight of all of them together, (m - 1) / (size * (m - size)), up to one factor."""
        return (self.features - 1) / (self.size * (self.features - self.size)) / (2 if self.half else 1)

    def take(self, count: int) -> torch.Tensor:
        """The first `count` coalitions, (count, features)."""
        if not self._drawn and self.population <= 4 * count:
            self._drawn = self._all()
        while len(self._drawn) < count:
            self._draw(count)
        return torch.stack(self._drawn[:count])

    def _stream(self) -> torch.Generator:
        if self._generator is None:
            self._generator = torch.Generator().manual_seed(self.seed)
        return self._generator

    def _all(self) -> list[torch.Tensor]:
        free = range(int(self.half), self.features)
        chosen = torch.tensor(list(itertools.combinations(free, self.size - self.half)))
        shuffled = self._masks(chosen.reshape(self.population, -1).long())
        return list(shuffled[torch.randperm(len(shuffled), generator=self._stream())])

    def _draw(self, count: int) -> None:
        """Random ones, but for those there already."""
        keys = torch.rand(count, self.features - self.half, generator=self._stream())
        for mask in self._masks(keys.argsort(1)[:, : self.size - self.half] + int(self.half)):
            key = mask.numpy().tobytes()
            if key not in self._seen:
                self._seen.add(key)
                self._drawn.append(mask)

    def _masks(self, chosen: torch.Tensor) -> torch.Tensor:
        masks = torch.zeros(len(chosen), self.features, dtype=torch.bool).scatter_(1, chosen, True)
        masks[:, 0] |= self.half
        return masks


def strata(features: int, paired: bool, generator: torch.Generator) -> list[Stratum]:
    """Every size of coalition but none and all; of complementary sizes only the smaller one where `paired`."""
    sizes = range(1, features // 2 + 1) if paired else range(1, features)
    seeds = torch.randint(2**62, (len(sizes),), generator=generator).tolist()
    return [
        Stratum(features, size, paired and 2 * size == features, seed) for size, seed in zip(sizes, seeds, strict=True)
    ]


def allocate(layers: list[Stratum], total: int, sampling: str) -> list[int]:
    """How many coalitions each stratum gives, `total` in all at most; all of them where there are no more.

    In proportion to the leverage scores of the regression, which are 1 / population, or to the Shapley kernel.
    """
    density = [1 / (1 + s.half) if sampling == "leverage" else s.mass for s in layers]

    def counts(scale: float) -> list[int]:
        return [min(s.population, max(1, int(scale * q))) for s, q in zip(layers, density, strict=True)]

    low, high = 0.0, (total + 1) / min(density)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(counts(middle)) <= total else (low, middle)
    return counts(low)
