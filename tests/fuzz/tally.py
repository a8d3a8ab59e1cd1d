"""Running many programs in one process and adding up what they came to."""

from __future__ import annotations

import faulthandler
from dataclasses import dataclass, field

import torch

import torus  # noqa: F401  makes the device exist where the package is not installed
from tests.fuzz.generate import fuzz
from tests.fuzz.program import Mismatch, Program


@dataclass
class Tally:
    """What a run of programs came to."""

    programs: int = 0
    statements: int = 0
    compiles: int = 0
    fallbacks: dict[str, int] = field(default_factory=dict)
    mismatches: list[tuple[Program, Mismatch]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.programs += other.programs
        self.statements += other.statements
        self.compiles += other.compiles
        self.mismatches += other.mismatches
        for name, count in other.fallbacks.items():
            self.fallbacks[name] = self.fallbacks.get(name, 0) + count


def run_seeds(seeds: list[int], dtypes: list[torch.dtype], mode: str = "strict") -> Tally:
    """Run the programs of some seeds in this process."""
    torch.set_num_threads(1)
    faulthandler.enable()
    tally = Tally()
    compiles, before = torch.tpu.counters()["compiles"], dict(torch.tpu.fallbacks())
    for seed in seeds:
        program, mismatch = fuzz(seed, dtypes, mode)
        tally.programs += 1
        tally.statements += len(program.lines)
        if mismatch is not None:
            tally.mismatches.append((program, mismatch))
    tally.compiles = torch.tpu.counters()["compiles"] - compiles
    tally.fallbacks = {n: c - before.get(n, 0) for n, c in torch.tpu.fallbacks().items() if c > before.get(n, 0)}
    return tally
