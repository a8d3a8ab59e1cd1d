"""The directory of the cache: whose it is, how large it grows, and what happens when it fails."""

from __future__ import annotations

import errno
import shutil
import subprocess
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtime.caches import entry, get, process, totals, works
from torus.runtime import jaxlib_adapter as adapter
from torus.runtime.disk_cache import DiskCache
from torus.runtime.programs import CacheWarning

Python = Callable[..., subprocess.CompletedProcess[str]]


# The directory


def test_the_directory_is_private(tmp_path: Path) -> None:
    cache = process(tmp_path / "parent" / "c")
    cache.record_signature(b"k", get(cache), b"")
    made = [tmp_path / "parent", *(tmp_path / "parent").rglob("*")]
    modes = {path.relative_to(tmp_path).as_posix(): path.stat().st_mode & 0o777 for path in made}
    assert all(mode == (0o700 if (tmp_path / name).is_dir() else 0o600) for name, mode in modes.items()), modes
    assert len(modes) == 6


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722])
@pytest.mark.parametrize("name", ["c", "c/programs"])
def test_a_directory_that_others_can_write_is_refused_once(tmp_path: Path, name: str, mode: int) -> None:
    get(process(tmp_path / "c"))
    (tmp_path / name).chmod(mode)
    cache = process(tmp_path / "c")
    with pytest.warns(CacheWarning, match="can be written by others") as caught:
        assert works(get(cache))
        get(cache, 4)
        cache.record_signature(b"k", get(cache), b"")
        assert cache.lookup_signature(b"k", 0) is None
    assert len(caught) == 1
    assert totals(cache)[1:] == (0, 2)


def test_a_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    uid = os.geteuid()
    (tmp_path / "c").mkdir(mode=0o700)
    monkeypatch.setattr("torus.runtime.disk_cache.os.geteuid", lambda: uid + 1)
    cache = process(tmp_path / "c")
    with pytest.warns(CacheWarning, match=f"belongs to user {uid}, not to {uid + 1}"):
        assert works(get(cache))


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = process(tmp_path / "file" / "c")
    with pytest.warns(CacheWarning, match="cannot be made.*") as caught:
        assert works(get(cache)) and works(get(cache, 4))
    assert len(caught) == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_cannot_be_written_is_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    get(process(tmp_path / "c"))

    def fail(*args: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(DiskCache, "_replace", fail)
    cache = process(tmp_path / "c")
    with pytest.warns(CacheWarning, match="cannot be written, new programs are kept in memory only") as caught:
        for size in (3, 4, 5):
            assert works(get(cache, size))
            cache.record_signature(b"%d" % size, get(cache, size), b"")
    assert len(caught) == 1
    assert totals(cache) == (3, 1, 2)
    assert cache.stats()["writable"] is False


def test_a_directory_that_vanishes_while_in_use(tmp_path: Path) -> None:
    cache = process(tmp_path / "c")
    cache.record_signature(b"k", get(cache), b"")
    shutil.rmtree(tmp_path / "c")
    with pytest.warns(CacheWarning, match="cannot be written") as caught:
        assert works(get(cache, 4))
        assert works(get(cache, 5))
    assert len(caught) == 1
    assert cache.stats()["entries"] == 0
    cache.clear()
    assert cache.lookup_signature(b"k", 0) is None


def test_a_platform_that_cannot_serialize_keeps_programs_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(executable: object) -> bytes:
        raise RuntimeError("UNIMPLEMENTED")

    monkeypatch.setattr(adapter, "serialize", fail)
    cache = process(tmp_path / "c")
    with pytest.warns(CacheWarning, match="cannot be kept on disk: UNIMPLEMENTED") as caught:
        assert works(get(cache)) and works(get(cache, 4)) and get(cache) is get(cache)
    assert len(caught) == 1


# Size and clearing


def test_the_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    path = tmp_path / "c"
    first = process(path)
    sizes = range(1, 7)
    programs = {size: get(first, size) for size in sizes}
    for size, program in programs.items():
        first.record_signature(b"%d" % size, program, b"m")
        aged(entry(path, program), 1000 - size)
    one = entry(path, programs[1]).stat().st_size
    limited = process(path, limit=one * 6)
    get(limited, 1)  # used now: the oldest becomes the newest
    newest = get(limited, 7)
    kept = {p.name for p in (path / "programs").iterdir()}
    assert newest.key in kept and programs[1].key in kept
    assert programs[2].key not in kept and programs[3].key not in kept
    assert sum(p.stat().st_size for p in (path / "programs").iterdir()) <= one * 6
    fresh = process(path)
    assert fresh.lookup_signature(b"1", 0) is not None
    assert fresh.lookup_signature(b"2", 0) is None
    get(fresh, 2)
    assert fresh.explain()[0]["why"] == "new program"


def aged(path: Path, seconds: float) -> None:
    import os

    then = time.time() - seconds
    os.utime(path, (then, then))


def test_a_program_larger_than_the_cache_stays_in_memory(tmp_path: Path) -> None:
    cache = process(tmp_path / "c", limit=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert works(get(cache)) and get(cache) is get(cache)
    assert cache.stats()["entries"] == 0


def test_what_a_dead_process_left_is_removed(tmp_path: Path) -> None:
    cache = process(tmp_path / "c")
    get(cache)
    old, young = (tmp_path / "c" / "programs" / name for name in (".1-dead", ".2-alive"))
    for path in (old, young):
        path.write_bytes(b"half an entry")
    aged(old, 7200)
    assert cache.stats()["entries"] == 1
    assert not old.exists() and young.exists()


def test_clear(tmp_path: Path) -> None:
    cache = process(tmp_path / "c")
    program = get(cache)
    cache.record_signature(b"k", program, b"")
    assert (cache.stats()["entries"], cache.stats()["in_memory"]) == (1, 1)
    cache.clear(disk=False)
    assert (cache.stats()["entries"], cache.stats()["in_memory"]) == (1, 0)
    assert cache.lookup_signature(b"k", 0) is not None and cache.stats()["disk_hits"] == 1
    cache.clear()
    stats = cache.stats()
    assert (stats["entries"], stats["bytes"], stats["in_memory"], stats["compiles"]) == (0, 0, 0, 0)
    assert cache.lookup_signature(b"k", 0) is None and cache.explain() == []
    assert works(program)
    assert works(get(cache)) and cache.stats()["entries"] == 1
