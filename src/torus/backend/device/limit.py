"""The most memory that a device may hold: what a chip would refuse is refused, with what holds its memory.

The core counts; here is what it says. A limit is the one of ``TORUS_HBM_LIMIT`` or of the slice of ``TORUS_SIMULATE``,
until `set_memory_limit` gives another.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import NoReturn

import torch

from torus import _C, settings
from torus.backend.device.amounts import show_bytes
from torus.backend.device.indices import Device, index_of

_SHOWN = 8
_NO_LINE = "the backward pass"
"""What autograd runs on its own thread has no line of the user's program."""


@dataclass(frozen=True)
class LiveTensors:
    """What one op at one line of the user's program has made and is alive: `sizes` are those of the largest."""

    bytes: int
    count: int
    dtype: torch.dtype
    sizes: tuple[int, ...]
    made_by: str
    line: str

    def __str__(self) -> str:
        what = f"{self.dtype}{list(self.sizes)}".removeprefix("torch.")
        each = what if self.count == 1 else f"{self.count} x up to {what}"
        return f"{show_bytes(self.bytes):>10}  {each}, {self.made_by}, {self.line or _NO_LINE}"


def set_memory_limit(limit: int | str | None, device: Device = None) -> None:
    """Let a device (default: the current one) hold no more than `limit`: bytes, ``"32GiB"``, or None for all there is.

    An op, a program or a copy from the host that needs more raises `torch.OutOfMemoryError`, and leaves all as it was.
    Which line made a tensor is known of those that are made from here on. Raises ValueError for another text.
    """
    size = settings.parse_size(limit) if isinstance(limit, str) else limit
    if size is not None and size <= 0:
        raise ValueError(f"a limit is a number of bytes from 1 on, or None, and not {limit!r}")
    if size and not is_set():
        _C.clear_programs()  # how much a program needs is asked when it is loaded
    _C.limit_memory(index_of(device), size or 0)


def is_set() -> bool:
    """Whether any device has a limit."""
    return any(_C.memory_limit(index) for index in range(_C.device_count()))


def memory_limit(device: Device = None) -> int | None:
    """The most bytes that a device may hold; None where nothing is set."""
    return _C.memory_limit(index_of(device)) or None


def live_tensors(device: Device = None) -> list[LiveTensors]:
    """What is alive on a device that has a limit, by the op and line that made it; the largest first."""
    groups: dict[tuple[str, str], list[tuple[int, torch.dtype, tuple[int, ...]]]] = defaultdict(list)
    for dtype, sizes, nbytes, made_by, line in _C.live_values(index_of(device)):
        groups[made_by, line].append((nbytes, dtype, tuple(sizes)))
    rows = []
    for (made_by, line), values in groups.items():
        _, kind, shape = max(values, key=lambda value: value[0])
        rows.append(LiveTensors(sum(v[0] for v in values), len(values), kind, shape, _named(made_by), line))
    return sorted(rows, key=lambda row: -row.bytes)


def refuse(index: int, nbytes: int, what: str) -> NoReturn:
    """Raise the error for `nbytes` that `what` asks for and device `index` has no room for."""
    limit, used = _C.memory_limit(index), _C.memory_stats(index)["allocated_bytes.current"]
    raise torch.OutOfMemoryError(
        f"RESOURCE_EXHAUSTED: TPU out of memory. Tried to allocate {show_bytes(nbytes)} on tpu:{index} for "
        f"{_named(what)}. {show_bytes(used)} of the limit of {show_bytes(limit)} are in use, "
        f"{show_bytes(max(0, limit - used))} are free.\n{_report(index, used)}"
    )


def _report(index: int, used: int) -> str:
    rows = live_tensors(index)
    rest = used - sum(row.bytes for row in rows[:_SHOWN])
    lines = ["The largest live tensors, by the line that made them:", *map(str, rows[:_SHOWN])]
    return "\n".join(lines + ([f"{show_bytes(rest):>10}  all others"] if rest > 0 else []))


def _named(what: str) -> str:
    return "a compiled graph" if what.startswith("graph:") else what


def apply_settings() -> None:
    """Set the limit of every device that the settings say. A bad setting is reported by the first use of the device."""
    try:
        limit = settings.get("hbm_limit")
        simulated = settings.get("simulate")
    except ValueError:
        return
    for index in range(_C.device_count() if limit else 0):
        _C.limit_memory(index, limit)
    _C.emulate_allowed_passes(simulated is not None)
