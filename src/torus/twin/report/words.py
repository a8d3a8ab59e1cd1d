"""Quantities as people write them."""

from __future__ import annotations


def binary(count: float) -> str:
    """Bytes, as memory is counted: ``10.6 GiB``."""
    return _scaled(count, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def decimal(count: float, unit: str) -> str:
    """Anything else: ``1.25 TFLOP``."""
    return _scaled(count, 1000, tuple(prefix + unit for prefix in ("", "k", "M", "G", "T", "P", "E")))


def seconds(value: float) -> str:
    """``12.3 ms``"""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size or unit == "us":
            return f"{_digits(value / size)} {unit}"
    raise AssertionError


def change(before: float, after: float) -> str:
    """``-37 %``, or how many times as much."""
    if not before:
        return ""
    ratio = after / before
    return f"{ratio:.1f}x" if ratio >= 2 else f"{100 * (ratio - 1):+.0f} %"


def _scaled(count: float, step: int, units: tuple[str, ...]) -> str:
    for unit in units[:-1]:
        if abs(count) < step * 0.9995:
            return f"{_digits(count)} {unit}" if unit is not units[0] else f"{count:.0f} {unit}"
        count /= step
    return f"{_digits(count)} {units[-1]}"


def _digits(value: float) -> str:
    """Three digits."""
    return f"{value:.{max(0, 3 - len(str(int(abs(value)))))}f}" if value else "0"
