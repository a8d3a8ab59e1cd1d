"""Numbers with their units, for people."""

from __future__ import annotations

NOT_COUNTED = "n/a"


def seconds(value: float) -> str:
    """``0.0123`` -> ``"12.3 ms"``."""
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.1f} ms"


def mebibytes(value: int | None) -> str:
    """``1048576`` -> ``"1.0 MiB"``; n/a for None."""
    return NOT_COUNTED if value is None else f"{value / 2**20:,.1f} MiB"


def count(counters: dict[str, int] | None, name: str) -> str:
    """One of the device's counters; n/a where the device does not count."""
    return NOT_COUNTED if counters is None else f"{counters.get(name, 0):,}"


def total(counts: dict[str, int] | None) -> str:
    """``{"aten::foo": 2}`` -> ``"2 (aten::foo)"``, ``{}`` -> ``"none"``."""
    if counts is None:
        return NOT_COUNTED
    return f"{sum(counts.values()):,} ({', '.join(sorted(counts))})" if counts else "none"
