"""Amounts as people read them."""

from __future__ import annotations

import math


def show_bytes(count: float) -> str:
    """``16.0 KiB``."""
    if count < 1024:
        return f"{count:.0f} B"
    power = min(4, int(math.log2(count)) // 10)
    return f"{count / 1024**power:.1f} {'KMGT'[power - 1]}iB"


def show_seconds(seconds: float) -> str:
    """``12.3 ms``."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


def count(number: int, what: str) -> str:
    """``3 flushes``, ``1 op``."""
    plural = what + ("es" if what.endswith("sh") else "s")
    return f"{number} {what if number == 1 else plural}"
