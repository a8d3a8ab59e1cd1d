"""Entries of the cache that must not be run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtime.caches import (
    LARGE,
    entry,
    flip_a_bit,
    get,
    of_another_program,
    process,
    totals,
    truncate,
    works,
)
from torus.runtime.disk_cache import DiskCache
from torus.runtime.programs import CacheWarning


def cut_to_nothing(path: Path) -> None:
    path.write_bytes(b"")


def flip_the_checksum(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(bytes(data))


def foreign_file(path: Path) -> None:
    path.write_bytes(b"\x7fELF" + b"\0" * 500)


def not_an_executable(path: Path) -> None:
    cache = DiskCache(path.parents[1], LARGE)
    stored = cache.load(path.name)
    assert stored is not None
    cache.store(path.name, stored.header, b"these bytes are well kept and not an executable")


def writable_by_others(path: Path) -> None:
    path.chmod(0o666)


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_link(path: Path) -> None:
    elsewhere = path.parents[2] / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncate, "checksum does not match"),
        (cut_to_nothing, "truncated"),
        (flip_a_bit, "checksum does not match"),
        (flip_the_checksum, "checksum does not match"),
        (foreign_file, "not an entry of this cache"),
        (of_another_program, "the entry of another program"),
        (not_an_executable, "this runtime does not load it"),
        (writable_by_others, "can be written by others"),
        (a_directory, "not a regular file|unreadable"),
        (a_link, "unreadable"),
    ],
)
def test_a_bad_entry_is_compiled_again_and_reported_once(
    tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    first = process(tmp_path / "c")
    program = get(first)
    get(first, 4)
    first.record_signature(b"add", program, b"m")
    damage(entry(tmp_path / "c", program))
    second = process(tmp_path / "c")
    with pytest.warns(CacheWarning, match=reason) as caught:
        assert second.lookup_signature(b"add", 0) is None
        assert works(get(second))
        second.clear(disk=False)
        get(second)
    assert len(caught) == 1
    third = process(tmp_path / "c")
    assert works(get(third)) and totals(third) == (0, 1, 0)


def test_a_bad_entry_is_an_explained_miss(tmp_path: Path) -> None:
    program = get(process(tmp_path / "c"))
    truncate(entry(tmp_path / "c", program))
    cache = process(tmp_path / "c")
    with pytest.warns(CacheWarning):
        get(cache)
    assert cache.explain()[0]["why"].startswith("bad entry: damaged or truncated")


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, foreign_file, cut_to_nothing])
def test_a_damaged_index_costs_compiles_at_most(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    first = process(tmp_path / "c")
    for size in range(1, 5):
        first.record_signature(b"%d" % size, get(first, size), b"m" * 40)
    damage(tmp_path / "c" / "index")
    second = process(tmp_path / "c")
    for size in range(1, 5):
        found = second.lookup_signature(b"%d" % size, 0)
        program = found[0] if found else get(second, size)
        assert program.out_avals[0][0] == (size,) and works(program)
        second.record_signature(b"%d" % size, program, b"new")
    third = process(tmp_path / "c")
    assert all(third.lookup_signature(b"%d" % size, 0) is not None for size in range(1, 5))
    assert totals(third)[2] == 0
