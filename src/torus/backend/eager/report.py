"""What each flush was: kept while somebody asks (`torch.tpu.explain`)."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from torus import _C


@dataclass(frozen=True)
class OpRecord:
    """A recorded op and the line of the user's program that recorded it ("" where autograd did)."""

    name: str
    place: str


@dataclass(frozen=True)
class SegmentRecord:
    """Ops that ran together; `how`: "fused", "op by op" or "one program"."""

    ops: tuple[OpRecord, ...]
    how: str


@dataclass(frozen=True)
class Flush:
    """One run of recorded ops. Times are seconds of the monotonic clock."""

    cause: str
    place: str
    segments: tuple[SegmentRecord, ...]
    programs: int
    known: bool
    bytes_in: int
    bytes_out: int
    start: float
    end: float

    @property
    def ops(self) -> int:
        """How many ops ran."""
        return sum(len(segment.ops) for segment in self.segments)

    @property
    def seconds(self) -> float:
        """Time that the flush kept its thread."""
        return self.end - self.start


_listeners: list[list[Flush]] = []
_lock = threading.Lock()


def listen() -> list[Flush]:
    """A list that grows by each flush from now on."""
    flushes: list[Flush] = []
    with _lock:
        _listeners.append(flushes)
        _C.set_explaining(True)
    return flushes


def stop(flushes: list[Flush]) -> None:
    """End what `listen` began."""
    with _lock:
        _listeners[:] = [other for other in _listeners if other is not flushes]
        _C.set_explaining(bool(_listeners))


def flushed(event: tuple[Any, ...]) -> None:
    """Called by the core after each flush while anybody listens."""
    cause, place, segments, programs, known, bytes_in, bytes_out, start, end = event
    records = tuple(SegmentRecord(tuple(OpRecord(*op) for op in ops), how) for ops, how in segments)
    record = Flush(cause, place, records, programs, known, bytes_in, bytes_out, start / 1e9, end / 1e9)
    with _lock:
        for flushes in _listeners:
            flushes.append(record)
