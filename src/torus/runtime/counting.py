"""What has happened in this process; read by tests, benchmarks and reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counters:
    """Plain integers: anyone may read, add to or reset them."""

    compiles: int = 0
    cache_hits: int = 0


counters = Counters()
