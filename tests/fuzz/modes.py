"""In which mode the device runs a program: one for all of it, or another one now and then."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import torch

import torus  # noqa: F401  makes the device exist where the package is not installed
from torus import _C

EagerMode = torch.tpu.EagerMode

MODES = {
    "strict": (EagerMode.DEFER_NEVER, "background"),
    "recorded": (EagerMode.DEFER_AND_FUSE, "never"),
    "fused": (EagerMode.DEFER_AND_FUSE, "foreground"),
    "background": (EagerMode.DEFER_AND_FUSE, "background"),
}
"""The name of a mode -> when ops run, and when fused programs are compiled."""

MIXED = "mixed"
NAMES = (*MODES, MIXED)


def choose(name: str) -> None:
    """Run what follows in a mode."""
    torch.tpu.eager_mode, torch.tpu.fusing = MODES[name]


class Switch:
    """Puts the device into the mode of the next statement."""

    def __init__(self, name: str, seed: int) -> None:
        self._mixed = name == MIXED
        self._rng = random.Random(f"modes {seed}")
        choose("recorded" if self._mixed else name)

    def before_statement(self) -> None:
        """In a mixed run, change the mode every third time; ``"background"`` only now and then, since it compiles."""
        if self._mixed and self._rng.random() < 1 / 3:
            choose(self._rng.choices(list(MODES), [4, 5, 0.2, 1])[0])


@contextmanager
def running(name: str, seed: int = 0) -> Iterator[Switch]:
    """A mode for a block; afterwards the one before."""
    before = torch.tpu.eager_mode, torch.tpu.fusing
    try:
        yield Switch(name, seed)
    finally:
        _C.flush(False)
        torch.tpu.eager_mode, torch.tpu.fusing = before
