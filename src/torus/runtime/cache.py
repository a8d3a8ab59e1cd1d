"""What the program cache of this process holds and why programs were compiled."""

from __future__ import annotations

from typing import Any

from torus.runtime import programs


def stats() -> dict[str, Any]:
    """Totals of this process (memory_hits, disk_hits, misses, compiles, compile_seconds, ...) and what is on disk
    (entries, bytes, path).
    """
    return programs.cache.stats()


def clear(disk: bool = True) -> None:
    """Forget the programs in memory and, with `disk`, those on disk. Programs that callers hold keep working."""
    programs.cache.clear(disk)


def explain() -> list[dict[str, Any]]:
    """One record for each program that was compiled, oldest first.

    `program` is its content address, `why` says what was missing ("new program", "options changed", "bad entry: ..."),
    `nearest` is the known program that is most like it, and `changed` maps the names of the components that differ to
    the old and the new value.
    """
    return programs.cache.explain()
