"""What each flush was: kept while somebody asks (`torch.tpu.explain`)."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from typing import Any

import torch

from torus import _C, runtime
from torus.backend.device import modes


@dataclass(frozen=True)
class OpRecord:
    """A recorded op, the line of the user's program that recorded it ("" where autograd did), and what it gives, as in
    "float32[4, 4]".
    """

    name: str
    place: str
    results: str = ""


@dataclass(frozen=True)
class SegmentRecord:
    """Ops that ran together; `how`: "fused", "op by op", "one program", or "not needed" (nobody wants a result).

    `why` says what kept them from being fused: "new", "being made ready", "recordings keep changing" and the like.
    """

    ops: tuple[OpRecord, ...]
    how: str
    why: str = ""


@dataclass(frozen=True)
class Flush:
    """One run of recorded ops.

    `cause` is why it came, `place` the line of the user's program that caused it. `known` says that the same recording
    came before. Bytes are those of the arrays that were there before, and of the results that are kept. Times are
    seconds of the monotonic clock. `compiles` and `cache_hits` count programs since the flush before, in any thread;
    `fusing` is when fused programs were compiled then.
    """

    cause: str
    place: str
    segments: tuple[SegmentRecord, ...]
    programs: int
    known: bool
    bytes_in: int
    bytes_out: int
    start: float
    end: float
    compiles: int = 0
    cache_hits: int = 0
    fusing: str = "background"

    @property
    def ops(self) -> int:
        """How many ops were recorded; those that nobody needed count too."""
        return sum(len(segment.ops) for segment in self.segments)

    @property
    def seconds(self) -> float:
        """Time that the flush kept its thread, compiling included; the device may still be working when it ends."""
        return self.end - self.start

    @property
    def how(self) -> str:
        """How its ops ran: "fused", "op by op", "mixed", "one program" or "not needed"."""
        found = {segment.how for segment in self.segments} - {"not needed"}
        several = found - {"one program"}
        if len(several) > 1:
            return "mixed"
        return next(iter(several or found), "not needed")

    @property
    def origin(self) -> str:
        """Where its programs came from: "2 compiled", "1 from the cache" (of this process or on disk), both, or
        "reused".
        """
        counts = ((self.compiles, "compiled"), (self.cache_hits, "from the cache"))
        return ", ".join(f"{count} {what}" for count, what in counts if count) or ("reused" if self.programs else "")

    def to_dict(self, begin: float) -> dict[str, Any]:
        """In plain values; times in seconds since `begin`, to the nanosecond."""
        start, end = round(self.start - begin, 9), round(self.end - begin, 9)
        segments = [
            {"how": segment.how, "why": segment.why, "ops": [asdict(op) for op in segment.ops]}
            for segment in self.segments
        ]
        derived = {"how": self.how, "origin": self.origin, "ops": self.ops, "seconds": round(end - start, 9)}
        return (
            {name: getattr(self, name) for name in _PLAIN}
            | derived
            | {"start": start, "end": end, "segments": segments}
        )

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Flush:
        """The flush that `to_dict` gave, in a clock that starts with its `begin`."""
        segments = tuple(
            SegmentRecord(tuple(OpRecord(**op) for op in segment["ops"]), segment["how"], segment["why"])
            for segment in values["segments"]
        )
        return cls(segments=segments, **{name: values[name] for name in (*_PLAIN, "start", "end")})


_PLAIN = ("cause", "place", "programs", "known", "bytes_in", "bytes_out", "compiles", "cache_hits", "fusing")
"""Fields of a flush that are numbers and text, without the times."""


def shorten(place: str) -> str:
    """``/a/b/runs/train.py:12 in step`` -> ``runs/train.py:12 in step``."""
    file, separator, rest = place.rpartition(":")
    return "/".join(PurePath(file).parts[-2:]).replace("//", "/") + separator + rest


@dataclass
class _Listener:
    """Who asks, and what the counters said at the last flush."""

    flushes: list[Flush]
    compiles: int
    cache_hits: int

    def hear(self, flush: Flush) -> None:
        """Keep a flush, with what was counted since the one before. The counters may have been reset meanwhile."""
        counted = runtime.counters
        compiles, hits = counted.compiles - self.compiles, counted.cache_hits - self.cache_hits
        self.compiles, self.cache_hits = counted.compiles, counted.cache_hits
        self.flushes.append(replace(flush, compiles=max(0, compiles), cache_hits=max(0, hits)))


_listeners: list[_Listener] = []
_lock = threading.Lock()


def listen() -> list[Flush]:
    """A list that grows by each flush from now on."""
    flushes: list[Flush] = []
    with _lock:
        _listeners.append(_Listener(flushes, runtime.counters.compiles, runtime.counters.cache_hits))
        _C.set_explaining(True)
    return flushes


def stop(flushes: list[Flush]) -> None:
    """End what `listen` began."""
    with _lock:
        _listeners[:] = [other for other in _listeners if other.flushes is not flushes]
        _C.set_explaining(bool(_listeners))


def _op(fields: tuple[str, str, list[tuple[torch.dtype, list[int]]]]) -> OpRecord:
    name, place, results = fields
    shown = (f"{str(dtype).removeprefix('torch.')}{list(sizes)}" for dtype, sizes in results)
    return OpRecord(name, place, ", ".join(shown))


def flushed(event: tuple[Any, ...]) -> None:
    """Called by the core after each flush while anybody listens."""
    cause, place, segments, programs, known, bytes_in, bytes_out, start, end = event
    records = tuple(SegmentRecord(tuple(map(_op, ops)), how, why) for ops, how, why in segments)
    record = Flush(
        cause, place, records, programs, known, bytes_in, bytes_out, start / 1e9, end / 1e9, fusing=modes.get_fusing()
    )
    with _lock:
        for listener in _listeners:
            listener.hear(record)
