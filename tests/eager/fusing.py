"""Shared by the tests of the mode that records and fuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from torus import _C
from torus.backend.eager import fuse

WAYS = ("strict", "never", "background", "foreground")
"""What `running` takes: not recorded; or recorded, and fused so."""


@contextmanager
def running(way: str = "foreground") -> Iterator[None]:
    """The mode inside of the block; what is still recorded at its end has run."""
    mode, fusing = torch.tpu.eager_mode, torch.tpu.fusing
    torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_NEVER if way == "strict" else torch.tpu.EagerMode.DEFER_AND_FUSE
    torch.tpu.fusing = "background" if way == "strict" else way
    try:
        yield
    finally:
        _C.flush(False)
        torch.tpu.eager_mode, torch.tpu.fusing = mode, fusing


def forget() -> None:
    """No program is known to this process any more; those on disk are."""
    fuse.wait_for_compiles(60)
    torch.tpu.cache.clear(disk=False)


class Counts:
    """What was counted since it was made, by the names of ``torch.tpu.counters()``: ``counts.flushes``."""

    def __init__(self) -> None:
        self._before = torch.tpu.counters()

    def __getattr__(self, name: str) -> int:
        return torch.tpu.counters()[name] - self._before[name]


def pending(tensor: torch.Tensor) -> bool:
    """Whether the tensor's value is recorded and not computed."""
    return _C.pending_ops(tensor) is not None


def settled(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The tensors, computed."""
    _C.flush(False)
    return tensors
