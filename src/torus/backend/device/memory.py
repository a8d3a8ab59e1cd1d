"""Memory: what live values hold, counted by the core itself, since not every runtime counts."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

from torus import _C, runtime
from torus.backend.device import forking
from torus.backend.device.indices import Device, index_of
from torus.backend.device.limit import LiveTensors, live_tensors, memory_limit, set_memory_limit

__all__ = [
    "LiveTensors",
    "empty_cache",
    "live_tensors",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_limit",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "set_memory_limit",
]


def _bytes(what: str, device: Device) -> int:
    return int(_C.memory_stats(index_of(device))[f"allocated_bytes.{what}"])


def memory_allocated(device: Device = None) -> int:
    """Bytes of the values alive on a device (default: the current one). Values shared by tensors count once."""
    return _bytes("current", device)


def max_memory_allocated(device: Device = None) -> int:
    """The most that `memory_allocated` has been since the start or the last `reset_peak_memory_stats`."""
    return _bytes("peak", device)


def memory_reserved(device: Device = None) -> int:
    """As `memory_allocated`: nothing is kept in reserve here."""
    return _bytes("current", device)


def max_memory_reserved(device: Device = None) -> int:
    """As `max_memory_allocated`."""
    return _bytes("peak", device)


def memory_stats(device: Device = None) -> OrderedDict[str, Any]:
    """The figures of `torch.accelerator.memory_stats`, such as ``"allocated_bytes.all.peak"``."""
    return torch.accelerator.memory_stats(index_of(device))


def reset_peak_memory_stats(device: Device = None) -> None:
    """Let the peaks start again from what is alive now."""
    _C.reset_peak_memory_stats(index_of(device))


def reset_max_memory_allocated(device: Device = None) -> None:
    """As `reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Let the totals of allocated and freed bytes start again from zero."""
    _C.reset_accumulated_memory_stats(index_of(device))


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Free and total bytes of a device: of its limit where it has one, else of the device; of the host, those of the
    machine within the limits set for this process.
    """
    forking.check()
    index = index_of(device)
    if limit := memory_limit(index):
        return max(0, limit - memory_allocated(index)), limit
    return runtime.memory_info(index)


def empty_cache() -> None:
    """Free what dead tensors have left behind. There is no cache of blocks to empty."""
    _C.drain_garbage()


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """The figures as text; `abbreviated` leaves out the totals."""
    index = index_of(device)
    stats = _C.memory_stats(index)
    rows = [("alive", stats["allocated_bytes.current"]), ("peak", stats["allocated_bytes.peak"])]
    if limit := memory_limit(index):
        rows.append(("limit", limit))
    if not abbreviated:
        rows += [
            ("allocated in all", stats["allocated_bytes.allocated"]),
            ("freed in all", stats["allocated_bytes.freed"]),
        ]
    lines = [f"{name:<17}{amount / 2**20:>14,.2f} MiB" for name, amount in rows]
    return "\n".join([f"memory of tpu:{index} ({stats['values.current']} values alive)", *lines])
