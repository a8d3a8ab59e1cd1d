"""The shared store behind the disk: what one machine compiles no other does, and no trouble of the store matters."""

from __future__ import annotations

import os
import subprocess
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtime.caches import LARGE, entry, flip_a_bit, get, of_another_program, truncate, works
from tests.runtime.object_store import BUCKET, ObjectStore
from tests.runtime.test_stores import bucket  # noqa: F401  a fixture
from torus.runtime import keys, shared_tier
from torus.runtime.cache_errors import CacheWarning
from torus.runtime.counting import Counters
from torus.runtime.disk_cache import DiskCache
from torus.runtime.object_cache import ObjectCache
from torus.runtime.programs import ProgramCache
from torus.runtime.shared_tier import SharedTier
from torus.runtime.stores import open_store

Python = Callable[..., subprocess.CompletedProcess[str]]


def machine(where: str, disk: Path | None, writes: bool = True) -> ProgramCache:
    """What a new process on a machine with this disk would have."""
    return ProgramCache(
        lambda: None if disk is None else DiskCache(disk, LARGE),
        Counters(),
        lambda warn: SharedTier(where, lambda url: ObjectCache(open_store(url)), writes, warn),
    )


def flush(cache: ProgramCache) -> bool:
    shared = cache.tiers.shared()
    assert shared is not None
    return shared.flush(20)


def hits(cache: ProgramCache) -> tuple[int, int, int, int]:
    """Hits in memory, on disk and in the shared store, and compiles."""
    stats = cache.stats()
    assert stats["requests"] == sum(stats[name] for name in ("memory_hits", "disk_hits", "shared_hits", "misses"))
    return stats["memory_hits"], stats["disk_hits"], stats["shared_hits"], stats["compiles"]


@pytest.fixture(params=["folder", "memory", "s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        request.getfixturevalue("bucket")
    return {
        "folder": str(tmp_path / "shared"),
        "memory": f"memory://{tmp_path.name}",
        "s3": f"s3://{BUCKET}/team",
    }[request.param]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "shared")


def fill(where: str, disk: Path | None, *sizes: int) -> None:
    """What a first machine leaves in the shared store."""
    cache = machine(where, disk)
    for size in sizes or (3,):
        cache.record_signature(b"%d" % size, get(cache, size), b"meta %d" % size)
    assert flush(cache)


# Hits


def test_a_second_machine_compiles_nothing(where: str, tmp_path: Path) -> None:
    fill(where, tmp_path / "one")
    second = machine(where, tmp_path / "two")
    found = second.lookup_signature(b"3", 0)
    assert found is not None and found[1] == b"meta 3" and works(found[0])
    assert get(second) is found[0] and hits(second) == (1, 0, 1, 0)


def test_what_is_found_goes_to_the_disk(where: str, tmp_path: Path) -> None:
    fill(where, tmp_path / "one")
    assert machine(where, tmp_path / "two").lookup_signature(b"3", 0) is not None
    alone = ProgramCache(lambda: DiskCache(tmp_path / "two", LARGE), Counters())
    found = alone.lookup_signature(b"3", 0)
    assert found is not None and found[1] == b"meta 3" and works(found[0])
    assert alone.stats()["disk_hits"] == 1
    (name,) = (path.name for path in (tmp_path / "one" / "programs").iterdir())
    assert [(tmp_path / disk / "programs" / name).read_bytes() for disk in ("one", "two")] == [
        open_store(where).read(f"programs/{name}")
    ] * 2


def test_without_a_disk(where: str) -> None:
    fill(where, None)
    second = machine(where, None)
    found = second.lookup_signature(b"3", 0)
    assert found is not None and works(found[0]) and hits(second) == (0, 0, 1, 0)
    assert second.find_signature(b"3", 0) == b"meta 3"


def test_the_disk_comes_first(folder: str, tmp_path: Path) -> None:
    fill(folder, tmp_path / "one")
    again = machine(folder, tmp_path / "one")
    assert works(get(again)) and hits(again) == (0, 1, 0, 0)


def test_a_program_whose_code_changed_its_signature(folder: str, tmp_path: Path) -> None:
    fill(folder, tmp_path / "one")
    second = machine(folder, tmp_path / "two")
    assert second.lookup_signature(b"of a newer version", 0) is None
    assert works(get(second)) and hits(second) == (0, 0, 1, 0)


def test_what_is_absent_is_asked_for_once(bucket: ObjectStore, tmp_path: Path) -> None:  # noqa: F811
    cache = machine(f"s3://{BUCKET}/team", tmp_path / "one")
    for _ in range(3):
        assert cache.lookup_signature(b"k", 0) is None
    assert len(bucket.requests) == 1
    cache.record_signature(b"k", get(cache), b"")
    assert flush(cache)
    assert [method for method, _ in bucket.requests] == ["GET", "GET", "PUT", "PUT"]
    assert cache.stats()["uploads"] == 2 and cache.stats()["uploads_pending"] == 0


def test_processes_on_two_machines(bucket: ObjectStore, python: Python, tmp_path: Path) -> None:  # noqa: F811
    code = """
import numpy as np
import torus.runtime as r
x = r.from_numpy(np.arange(4.0))
for key in (b"a", b"b"):
    found = r.programs.lookup_signature(key)
    if found is None:
        text, outs = r.lower(lambda a: a * 2 if key == b"a" else a + 2, [((4,), "float64")])
        found = r.programs.get_or_compile(text, outs), b"meta"
        r.programs.record_signature(key, *found)
    print(r.to_numpy(found[0]([x])[0]).tolist())
stats = r.cache.stats()
print(stats["compiles"], stats["shared_hits"], "torch" in sys.modules and sys.modules["torch"])
"""
    variables = bucket.environment() | {"TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT": f"s3://{BUCKET}/team"}
    expected = "[0.0, 2.0, 4.0, 6.0]\n[2.0, 3.0, 4.0, 5.0]\n"
    one = python(code, TORUS_CACHE_DIR=str(tmp_path / "one"), **variables)
    assert (one.stdout, one.stderr) == (f"{expected}2 0 None\n", "")
    assert len(bucket.objects) == 4
    two = python(code, TORUS_CACHE_DIR=str(tmp_path / "two"), **variables)
    assert (two.stdout, two.stderr) == (f"{expected}0 2 None\n", "")


# Trouble


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncate, "checksum does not match"),
        (flip_a_bit, "checksum does not match"),
        (of_another_program, "the entry of another program"),
        (lambda path: path.write_bytes(b"\x7fELF" * 20), "not an entry of this cache"),
    ],
)
def test_a_bad_program_is_compiled_again_and_replaced(
    folder: str, tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    fill(folder, None, 3, 4)
    program = get(machine(folder, None))
    damage(entry(Path(folder), program))
    second = machine(folder, tmp_path / "two")
    with pytest.warns(CacheWarning, match=f"{program.key[:12]}.*{folder}.*{reason}") as caught:
        assert second.lookup_signature(b"3", 0) is None
        assert works(get(second))
        assert flush(second)
    assert len(caught) == 1 and second.explain()[0]["why"].startswith("bad entry")
    third = machine(folder, tmp_path / "three")
    assert works(get(third)) and hits(third) == (0, 0, 1, 0)


def test_an_entry_made_from_something_else_is_not_used(folder: str) -> None:
    fill(folder, None)
    store = ObjectCache(open_store(folder))
    (kept,) = store.entries()
    found = store.load(kept.key)
    assert found is not None
    lie = found.header | {"components": found.header["components"] | {"jaxlib": "0.0"}}
    store.store(kept.key, lie, found.payload)
    cache = machine(folder, None)
    with pytest.warns(CacheWarning, match="not made from what its name says"):
        assert works(get(cache))
    assert hits(cache) == (0, 0, 0, 1)


def test_a_bad_signature_is_not_used(folder: str, tmp_path: Path) -> None:
    fill(folder, None, 3, 4)
    bad, other = sorted((Path(folder) / "signatures").iterdir())
    bad.write_bytes(other.read_bytes())
    second = machine(folder, tmp_path / "two")
    with pytest.warns(CacheWarning, match="the record of another signature") as caught:
        found = [second.lookup_signature(key, 0) for key in (b"3", b"4")]
    assert sorted(f is None for f in found) == [False, True] and len(caught) == 1


def test_a_store_that_fails_is_left_alone(bucket: ObjectStore, tmp_path: Path) -> None:  # noqa: F811
    bucket.status = 403
    cache = machine(f"s3://{BUCKET}/team", tmp_path / "one")
    with pytest.warns(CacheWarning, match=f"s3://{BUCKET}/team cannot be read and is left alone") as caught:
        for size in (3, 4):
            assert cache.lookup_signature(b"%d" % size, 0) is None
            cache.record_signature(b"%d" % size, get(cache, size), b"")
        flush(cache)
    assert len(caught) == 1 and len(bucket.requests) == 1
    assert hits(cache) == (0, 0, 0, 2) and cache.stats()["shared_readable"] is False
    assert machine("memory://other", tmp_path / "one").lookup_signature(b"3", 0) is not None


def test_a_store_that_cannot_be_written_is_still_read(bucket: ObjectStore, tmp_path: Path) -> None:  # noqa: F811
    url = f"s3://{BUCKET}/team"
    fill(url, None)
    bucket.writable = False
    cache = machine(url, tmp_path / "two")
    with pytest.warns(CacheWarning, match="is not written to any more: PermissionError") as caught:
        for size in (5, 6):
            assert works(get(cache, size))
            flush(cache)
        assert works(get(cache, 3))
    assert len(caught) == 1 and hits(cache) == (0, 0, 1, 2)
    assert cache.stats()["shared_writable"] is False and cache.stats()["writable"] is True


def test_a_store_that_does_not_answer(
    bucket: ObjectStore,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_tier, "SIGNATURE", 0.3)
    bucket.delay = 3.0
    cache = machine(f"s3://{BUCKET}/team", tmp_path / "one")
    started = time.monotonic()
    with pytest.warns(CacheWarning, match="did not answer in 0 seconds and is left alone") as caught:
        assert cache.lookup_signature(b"3", 0) is None
        assert works(get(cache))
    assert time.monotonic() - started < 2 and len(caught) == 1


def test_uploads_do_not_hold_up_the_computation(bucket: ObjectStore, tmp_path: Path) -> None:  # noqa: F811
    url = f"s3://{BUCKET}/team"
    cache = machine(url, tmp_path / "one")
    assert cache.lookup_signature(b"3", 0) is None
    program = get(cache)
    bucket.delay = 1.0
    started = time.monotonic()
    cache.record_signature(b"3", program, b"")
    assert time.monotonic() - started < 0.5 and cache.stats()["uploads_pending"] > 0
    assert flush(cache)


def test_nothing_is_written_where_that_is_not_wanted(folder: str, tmp_path: Path) -> None:
    cache = machine(folder, tmp_path / "one", writes=False)
    cache.record_signature(b"3", get(cache), b"")
    assert not Path(folder).exists() and cache.stats()["shared_writable"] is False


def test_a_store_that_cannot_be_opened(tmp_path: Path) -> None:
    cache = machine("nonsense://x", tmp_path / "one")
    with pytest.warns(CacheWarning, match="nonsense://x cannot be read and is left alone: .*nonsense") as caught:
        assert works(get(cache)) and works(get(cache, 4))
    assert len(caught) == 1


def test_a_file_in_the_place_of_the_folder(folder: str, tmp_path: Path) -> None:
    Path(folder).write_text("")
    cache = machine(folder, tmp_path / "one")
    with pytest.warns(CacheWarning, match=f"{folder} cannot be read and is left alone: NotADirectoryError") as caught:
        assert works(get(cache)) and works(get(cache, 4))
    assert len(caught) == 1


def test_an_unreachable_store_does_not_hold_up_the_process(python: Python) -> None:
    code = """
import time
import torus.runtime as r
text, outs = r.lower(lambda a: a * 2, [((4,), "float64")])
started = time.monotonic()
r.programs.get_or_compile(text, outs)
print(r.counters.compiles, time.monotonic() - started < 10)
"""
    done = python(code, TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT="http://127.0.0.1:9/nobody-listens")
    assert done.stdout == "1 True\n" and done.stderr.count("CacheWarning") == 1, done.stderr


def test_threads(folder: str, tmp_path: Path) -> None:
    fill(folder, None)
    cache = machine(folder, tmp_path / "two")
    threads = [threading.Thread(target=get, args=(cache,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert hits(cache) == (5, 0, 1, 0)


def test_clear_leaves_the_shared_store(folder: str, tmp_path: Path) -> None:
    fill(folder, tmp_path / "one")
    cache = machine(folder, tmp_path / "one")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.clear()
    assert cache.stats()["entries"] == 0 and works(get(cache)) and hits(cache) == (0, 0, 1, 0)


def test_keys_of_another_environment_are_absent(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(folder, None)
    real = keys.environment
    monkeypatch.setattr(keys, "environment", lambda device: real(device) | {"jaxlib": "0.11.1"})
    second = machine(folder, tmp_path / "two")
    assert second.lookup_signature(b"3", 0) is None and works(get(second)) and hits(second) == (0, 0, 0, 1)
    assert os.listdir(Path(folder) / "programs") != []
