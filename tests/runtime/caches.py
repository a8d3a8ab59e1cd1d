"""Program caches as processes open them, and what to ask of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.runtime.conftest import add_program
from torus import runtime
from torus.runtime.counting import Counters
from torus.runtime.disk_cache import DiskCache
from torus.runtime.programs import Program, ProgramCache

LARGE = 1 << 30


def process(path: Path | None, limit: int = LARGE) -> ProgramCache:
    """What a new process would have."""
    return ProgramCache(lambda: None if path is None else DiskCache(path, limit), Counters())


def get(cache: ProgramCache, size: int = 3, **options: Any) -> Program:
    return cache.get_or_compile(*add_program(size), 0, options)


def works(program: Program) -> bool:
    (shape, _), x = program.out_avals[0], np.arange(program.out_avals[0][0][0], dtype=np.float32)
    result = runtime.to_numpy(program([runtime.from_numpy(x)] * 2)[0])
    return result.shape == shape and bool((result == 2 * x).all())


def totals(cache: ProgramCache) -> tuple[int, int, int]:
    stats = cache.stats()
    assert stats["misses"] == stats["compiles"] == cache._counted.compiles
    assert stats["memory_hits"] + stats["disk_hits"] == cache._counted.cache_hits
    return stats["memory_hits"], stats["disk_hits"], stats["compiles"]


def entry(path: Path, program: Program) -> Path:
    return path / "programs" / program.key


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-200] ^= 1
    path.write_bytes(bytes(data))


def of_another_program(path: Path) -> None:
    other = next(p for p in path.parent.iterdir() if p != path)
    path.write_bytes(other.read_bytes())
