"""The cache of compiled programs: in memory, on disk, and in a shared store. See docs/cache.md."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from torus import _C, runtime
from torus.runtime.cache_errors import CacheMiss, CacheWarning

__all__ = [
    "CacheMiss",
    "CacheWarning",
    "cache_only",
    "clear",
    "dump_misses",
    "explain",
    "flush",
    "set_cache_only",
    "stats",
]


def stats() -> dict[str, Any]:
    """Totals of this process and what is kept.

    ``requests`` counts the programs that were asked for; each is one of ``memory_hits``, ``disk_hits``,
    ``shared_hits`` and ``misses``, but for those that were loaded ahead and never used. ``compiles``,
    ``compile_seconds`` and ``load_seconds`` are what misses and hits cost. ``signature_hits`` and
    ``signature_misses`` count calls whose program was known, or not, before they were traced.

    ``entries``, ``bytes``, ``limit``, ``path`` and ``writable`` describe the disk; ``shared``, ``shared_readable``,
    ``shared_writable``, ``uploads`` and ``uploads_pending`` the shared store; ``signatures`` counts the kinds of calls
    whose program the core knows.
    """
    found: dict[str, Any] = runtime.cache.stats()
    return {**found, "signatures": _C.signature_count()}


def clear(disk: bool = True) -> None:
    """Forget all programs in memory and, with `disk`, those on disk: the next calls compile again, or find them in the
    shared store, which stays as it is.
    """
    runtime.cache.clear(disk)
    _C.clear_programs()


def explain() -> list[dict[str, Any]]:
    """One record for each program that was compiled, oldest first: what was asked for, and why it was not there.

    ``program`` is its content address, ``summary`` its operations, ``why`` the reason in words, ``nearest`` the known
    program that is most like it, ``changed`` the components that differ, with the old and the new value,
    ``components`` all of them, ``compile_seconds`` what it cost (absent in cache-only mode).
    """
    records: list[dict[str, Any]] = runtime.cache.explain()
    return records


def set_cache_only(on: bool | None) -> None:
    """With True, a program that is in no cache raises `CacheMiss` instead of being compiled, in every thread of this
    process; with None it is as ``TORUS_CACHE_ONLY`` says.
    """
    runtime.cache.set_cache_only(on)


@contextlib.contextmanager
def cache_only() -> Iterator[None]:
    """Within the block no program is compiled, in any thread of this process: what is in no cache raises `CacheMiss`.

    A fused program that is missing is not an error: its operators run one by one, with a `FusionWarning`.
    """
    before: bool | None = runtime.cache.get_cache_only()
    runtime.cache.set_cache_only(True)
    try:
        yield
    finally:
        runtime.cache.set_cache_only(before)


def dump_misses(directory: str | os.PathLike[str] | None) -> None:
    """From now on write each program that is in no cache to this folder, as ``KEY.mlir`` and ``KEY.json``, before it is
    compiled; with None it is as ``TORUS_DUMP_MISSES`` says. ``torus cache warm --from`` compiles what is there.
    """
    runtime.cache.dump_misses(directory)


def flush(seconds: float = 60.0) -> bool:
    """Wait for the uploads to the shared store, at most so many seconds; False if some are not done, or never will be.

    The end of the process waits for them too.
    """
    done: bool = runtime.cache.flush(seconds)
    return done
