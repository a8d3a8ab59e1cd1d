"""What the program cache of this process holds and does, and why programs were compiled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torus.runtime import programs


def stats() -> dict[str, Any]:
    """Totals of this process (requests, memory_hits, disk_hits, shared_hits, misses, compiles, compile_seconds, ...),
    what is on disk (entries, bytes, path) and how the shared store does (shared, uploads, uploads_pending, ...).
    """
    return programs.cache.stats()


def clear(disk: bool = True) -> None:
    """Forget the programs in memory and, with `disk`, those on disk. Programs that callers hold keep working, and the
    shared store stays as it is.
    """
    programs.cache.clear(disk)


def explain() -> list[dict[str, Any]]:
    """One record for each program that was compiled or, in cache-only mode, missing; oldest first.

    `program` is its content address, `summary` its operations, `why` says what was missing ("new program", "options
    changed", "bad entry: ..."), `nearest` is the known program that is most like it, `changed` maps the names of the
    components that differ to the old and the new value, `components` is everything the program was made from, and
    `time` is when (seconds since 1970).
    """
    return programs.cache.explain()


def set_cache_only(on: bool | None) -> None:
    """Whether a program that is in no cache raises CacheMiss instead of being compiled; None: as the setting says."""
    programs.cache.cache_only = on


def get_cache_only() -> bool | None:
    """What `set_cache_only` was given last; None at first."""
    return programs.cache.cache_only


def dump_misses(directory: str | os.PathLike[str] | None) -> None:
    """From now on write each program that is in no cache to this folder; None: as the setting says."""
    programs.cache.dump_misses = Path(directory).expanduser() if directory is not None else None


def flush(seconds: float) -> bool:
    """Wait for the uploads to the shared store; False if some are not done by then, or never will be."""
    shared = programs.cache.tiers.shared()
    return shared is None or shared.flush(seconds)
