"""The cache of compiled programs, in memory and on disk."""

from __future__ import annotations

from typing import Any

from torus import _C, runtime


def stats() -> dict[str, Any]:
    """Totals of this process and what is kept.

    ``memory_hits``, ``disk_hits``, ``misses``, ``compiles`` and ``compile_seconds`` are totals; ``entries``, ``bytes``,
    ``limit`` and ``path`` describe the disk; ``signatures`` counts the kinds of calls whose program the core knows.
    """
    found: dict[str, Any] = runtime.cache.stats()
    return {**found, "signatures": _C.signature_count()}


def clear(disk: bool = True) -> None:
    """Forget all programs in memory and, with `disk`, those on disk: the next calls compile again."""
    runtime.cache.clear(disk)
    _C.clear_programs()


def explain() -> list[dict[str, Any]]:
    """One record for each program that was compiled, oldest first: what was asked for, and why it was not there."""
    records: list[dict[str, Any]] = runtime.cache.explain()
    return records
