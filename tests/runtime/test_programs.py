"""The program cache: one compile for each program, in memory and on disk, and nothing doubtful is ever run."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.runtime.caches import entry, get, process, totals, works
from tests.runtime.conftest import WITHOUT_TORCH, environment
from torus import runtime
from torus.runtime import jaxlib_adapter as adapter
from torus.runtime import keys
from torus.runtime.disk_cache import DiskCache
from torus.runtime.programs import Program

Python = Callable[..., subprocess.CompletedProcess[str]]


# Hits


def test_memory_then_disk(tmp_path: Path) -> None:
    first = process(tmp_path / "c")
    program = get(first)
    assert get(first) is program
    assert totals(first) == (1, 0, 1)
    second = process(tmp_path / "c")
    again = get(second)
    assert again.key == program.key and again.out_avals == program.out_avals and works(again)
    assert totals(second) == (0, 1, 0)


def test_without_a_disk() -> None:
    cache = process(None)
    assert works(get(cache)) and get(cache) is get(cache)
    assert totals(cache) == (2, 0, 1)
    cache.record_signature(b"k", get(cache), b"")
    assert cache.lookup_signature(b"k", 0) is None
    assert cache.stats()["path"] is None


def test_a_signature_gives_the_program_and_what_was_recorded(tmp_path: Path) -> None:
    first = process(tmp_path / "c")
    assert first.lookup_signature(b"add", 0) is None
    program = get(first)
    first.record_signature(b"add", program, b"\x00meta\xff" * 100)
    first.record_signature(b"old", program, b"1")
    first.record_signature(b"old", program, b"2")
    assert first.lookup_signature(b"add", 0) == (program, b"\x00meta\xff" * 100)
    second = process(tmp_path / "c")
    found = second.lookup_signature(b"add", 0)
    assert found is not None and found[1] == b"\x00meta\xff" * 100 and works(found[0])
    newest = second.lookup_signature(b"old", 0)
    assert newest is not None and newest == (found[0], b"2")
    assert second.lookup_signature(b"other", 0) is None
    assert totals(second) == (1, 1, 0)
    assert second.stats()["signature_hits"] == 2 and second.stats()["signature_misses"] == 1


def test_a_process_sees_what_another_adds_meanwhile(tmp_path: Path) -> None:
    first, second = process(tmp_path / "c"), process(tmp_path / "c")
    assert second.lookup_signature(b"add", 0) is None
    first.record_signature(b"add", get(first), b"m")
    found = second.lookup_signature(b"add", 0)
    assert found is not None and works(found[0])


def test_threads_compile_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile = adapter.compile
    monkeypatch.setattr(adapter, "compile", lambda *a: (time.sleep(0.2), compile(*a))[1])
    cache = process(tmp_path / "c")
    found: list[Program] = []
    threads = [threading.Thread(target=lambda: found.append(get(cache))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6 and len(set(map(id, found))) == 1
    assert totals(cache) == (5, 0, 1)


def test_a_thread_that_only_looks_does_not_fail_one_that_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = process(tmp_path / "c")
    program = get(first)
    first.record_signature(b"k", program, b"")
    entry(tmp_path / "c", program).unlink()
    cache, load, looking = process(tmp_path / "c"), DiskCache.load, threading.Event()

    def slow(disk: DiskCache, key: str) -> Any:
        looking.set()
        time.sleep(0.2)
        return load(disk, key)

    monkeypatch.setattr(DiskCache, "load", slow)
    found: list[object] = [0]
    thread = threading.Thread(target=lambda: found.append(cache.lookup_signature(b"k", 0)))
    thread.start()
    looking.wait()
    assert works(get(cache))
    thread.join()
    assert found == [0, None]
    assert totals(cache) == (0, 0, 1)


def test_a_program_that_does_not_compile_raises_each_time(tmp_path: Path) -> None:
    cache = process(tmp_path / "c")
    for _ in range(2):
        with pytest.raises((ValueError, RuntimeError)):
            cache.get_or_compile("nonsense", [], 0, {})
    assert works(get(cache)) and totals(cache) == (0, 0, 1)


def test_compiling_lets_other_threads_run() -> None:
    """A compile of a second or so must not stop the interpreter: count what another thread does meanwhile."""
    text, outs = runtime.lower(lambda x: sum((i + x) ** 0.5 for i in range(300)), [((64,), "float32")])
    ticks, done = [0], threading.Event()

    def tick() -> None:
        while not done.wait(0.001):
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    started = time.perf_counter()
    process(None).get_or_compile(text, outs, 0, {})
    seconds = time.perf_counter() - started
    done.set()
    thread.join()
    assert ticks[0] > 100 * seconds * 0.5


# Misses and their reasons


def test_each_component_is_part_of_the_address() -> None:
    shared = keys.environment(runtime_device())
    base = keys.program("text", {"a": 1}, shared)
    assert base.keys() >= {
        "platform",
        "platform_version",
        "device_kind",
        "jaxlib",
        "XLA_FLAGS",
        "cpu_features",
        "format",
    }
    for name in base:
        assert keys.address(base | {name: "other"}) != keys.address(base)
    for name in shared:
        assert keys.signature(b"k", shared | {name: "other"}) != keys.signature(b"k", shared)
    assert keys.signature(b"k", shared) != keys.signature(b"l", shared)


def test_programs_for_an_accelerator_do_not_depend_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cpu_features" in keys.environment(runtime_device())
    versions = adapter.versions(runtime_device())
    monkeypatch.setattr(adapter, "versions", lambda device: versions | {"platform": device.platform})
    assert "cpu_features" not in keys.environment(SimpleNamespace(platform="tpu"))


def runtime_device() -> Any:
    from torus.runtime import client

    return client.device(0)


@pytest.mark.parametrize(
    ("component", "value"),
    [("jaxlib", "0.11.1"), ("cpu_features", "0"), ("XLA_FLAGS", "--xla_x"), ("device_kind", "H200")],
)
def test_a_miss_says_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, component: str, value: str) -> None:
    get(process(tmp_path / "c"))
    real = keys.environment
    monkeypatch.setattr(keys, "environment", lambda device: real(device) | {component: value})
    second = process(tmp_path / "c")
    get(second)
    (record,) = second.explain()
    assert record["why"] == f"{component} changed"
    assert record["changed"][component][1] == value
    assert totals(second) == (0, 0, 1)


def test_a_miss_names_the_nearest_program(tmp_path: Path) -> None:
    cache = process(tmp_path / "c")
    plain = get(cache)
    get(cache, xla_cpu_use_fusion_emitters=False)
    get(cache, 4)
    entry(tmp_path / "c", plain).unlink()
    cache.clear(disk=False)
    get(cache)
    assert [(r["why"], r["nearest"]) for r in cache.explain()] == [("evicted or removed", plain.key)]


def test_options_are_part_of_the_key(tmp_path: Path) -> None:
    cache = process(tmp_path / "c")
    plain = get(cache)
    other = get(cache, xla_cpu_use_fusion_emitters=False)
    assert other.key != plain.key and works(other)
    first, second = cache.explain()
    assert (first["why"], first["nearest"]) == ("new program", None)
    assert (second["why"], second["nearest"]) == ("options changed", plain.key)
    assert second["changed"] == {"options": ("{}", '{"xla_cpu_use_fusion_emitters": false}')}
    assert first["compile_seconds"] > 0


def test_xla_flags_are_part_of_the_key(python: Python) -> None:
    code = """
import torus.runtime as r
text, outs = r.lower(lambda x: x * 2, [((4,), "float32")])
print(r.programs.get_or_compile(text, outs).key, [m["why"] for m in r.cache.explain()])
"""
    plain = python(code).stdout.split(" ", 1)
    flagged = python(code, XLA_FLAGS="--xla_cpu_enable_fast_math=false").stdout.split(" ", 1)
    assert plain[0] != flagged[0]
    assert flagged[1].strip() == "['XLA_FLAGS changed']"


def test_the_fingerprint_of_code(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    first = runtime.source_fingerprint(tmp_path)
    assert runtime.source_fingerprint(tmp_path) == first
    (tmp_path / "a.py").write_text("2")
    assert runtime.source_fingerprint(tmp_path) != first


# Processes


_WORK = """
import sys
import numpy as np
import torus.runtime as r
order = list(range(1, 13))
if sys.argv[1] == "down":
    order.reverse()
for size in order:
    x = r.from_numpy(np.arange(size, dtype=np.float32))
    found = r.programs.lookup_signature(b"%d" % size)
    if found is None:
        text, outs = r.lower(lambda a: a * 2 + 1, [((size,), "float32")])
        found = r.programs.get_or_compile(text, outs), b"m%d" % size
        r.programs.record_signature(b"%d" % size, *found)
    program, metadata = found
    assert metadata == b"m%d" % size
    assert (r.to_numpy(program([x])[0]) == np.arange(size) * 2 + 1).all()
print(r.counters.compiles)
"""


@pytest.mark.parametrize("limit", ["4GiB", "20kB"])
def test_concurrent_processes_and_then_another_one(tmp_path: Path, limit: str) -> None:
    env = environment(
        TORUS_CACHE_DIR=str(tmp_path / "cache"), TORUS_CACHE_SIZE=limit, PYTHONWARNINGS="error::RuntimeWarning"
    )

    def start(order: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-c", WITHOUT_TORCH + _WORK, order], env=env, stdout=pipe, stderr=pipe, text=True
        )

    both, compiled = [start("up"), start("down")], []
    for done in both:
        out, err = done.communicate(timeout=120)
        assert done.returncode == 0 and err == "", err
        compiled.append(int(out))
    assert max(compiled) <= 12 <= sum(compiled)  # one may find all that the other has made
    last = start("up")
    out, err = last.communicate(timeout=120)
    assert err == ""
    compiles = int(out)
    assert compiles == 0 if limit == "4GiB" else compiles > 0
    assert sum(p.stat().st_size for p in (tmp_path / "cache/default/programs").iterdir()) < (
        2**30 if limit == "4GiB" else 20_000
    )


def test_programs_do_not_depend_on_the_number_of_devices(python: Python) -> None:
    code = """
import numpy as np
import torus.runtime as r
last = r.device_count() - 1
text, outs = r.lower(lambda a: a * 2, [((4,), "float64")], last)
(result,) = r.programs.get_or_compile(text, outs, last)([r.from_numpy(np.arange(4.0), last)])
print(r.to_numpy(result).tolist(), r.counters.compiles)
"""
    assert python(code, TORUS_DEVICE_COUNT="4").stdout.split()[-1] == "1"
    assert python(code, TORUS_DEVICE_COUNT="1").stdout == "[0.0, 2.0, 4.0, 6.0] 0\n"


def test_the_cache_can_be_disabled(python: Python, tmp_path: Path) -> None:
    code = """
import torus.runtime as r
text, outs = r.lower(lambda a: a * 2, [((4,), "float64")])
r.programs.get_or_compile(text, outs)
print(r.counters.compiles, r.cache.stats()["path"])
"""
    for _ in range(2):
        assert python(code, TORCH_TPU_TIER2_COMPILATION_CACHE="disabled").stdout == "1 None\n"
    assert not (tmp_path / "cache").exists()
