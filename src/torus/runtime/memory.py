"""Waiting for a device, and how much memory it has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torus.runtime.client import client, device, platform_name

_CGROUPS = Path("/sys/fs/cgroup")


def synchronize(device_index: int) -> None:
    """Wait until every live array of a device has its value. Raises what its computation raised."""
    target = device(device_index)
    client().adapter.wait_for_all(target)


def memory_info(device_index: int) -> tuple[int, int]:
    """Free and total bytes of a device; of the host, what the machine and the control group allow."""
    target = device(device_index)
    stats: dict[str, Any] | None = target.memory_stats()
    if stats and "bytes_limit" in stats:
        total = int(stats["bytes_limit"])
        return total - int(stats.get("bytes_in_use", 0)), total
    if platform_name() != "cpu":
        raise RuntimeError(f"the runtime of {target.device_kind} does not say how much memory it has")
    return _host_memory()


def _host_memory() -> tuple[int, int]:
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    kibibytes = {words[0].rstrip(":"): int(words[1]) for words in lines}
    free, total = kibibytes["MemAvailable"] * 1024, kibibytes["MemTotal"] * 1024
    for limit, used in _control_group_limits():
        total, free = min(total, limit), min(free, max(0, limit - used))
    return free, total


def _control_group_limits() -> Iterator[tuple[int, int]]:
    """(limit, used) of each control group that holds this process and limits its memory."""
    try:
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in groups:
        if not controllers:  # version 2
            yield from _limits(_CGROUPS, path, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            yield from _limits(_CGROUPS / "memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes")


def _limits(root: Path, path: str, limit: str, used: str) -> Iterator[tuple[int, int]]:
    group = root / path.lstrip("/")
    for directory in (group, *group.parents):
        with contextlib.suppress(OSError, ValueError):  # no such file in this group, or "max": no limit
            yield int((directory / limit).read_text()), int((directory / used).read_text())
        if directory == root:
            return
