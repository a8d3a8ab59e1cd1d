"""``torus cache`` over a cache of three programs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtime.caches import LARGE, get, works
from tests.runtime.conftest import WITHOUT_TORCH, environment
from tests.runtime.object_store import BUCKET, ObjectStore
from tests.runtime.test_stores import bucket  # noqa: F401  a fixture
from torus.cli import main
from torus.runtime.counting import Counters
from torus.runtime.disk_cache import DiskCache
from torus.runtime.misses import LAST
from torus.runtime.object_cache import ObjectCache
from torus.runtime.programs import ProgramCache
from torus.runtime.stores import open_store

Torus = Callable[..., tuple[int, str, str]]
SIZES = (3, 40, 500)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The disk cache of this host, with a program of each size; the first was used last."""
    monkeypatch.setenv("TORUS_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TORCH_TPU_TIER2_COMPILATION_CACHE", raising=False)
    monkeypatch.delenv("TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT", raising=False)
    path = tmp_path / "default"
    cache = ProgramCache(lambda: DiskCache(path, LARGE), Counters())
    for days, size in enumerate(SIZES):
        program = get(cache, size)
        cache.record_signature(b"%d" % size, program, b"meta")
        then = time.time() - days * 86400 - 100
        os.utime(path / "programs" / program.key, (then, then))
    return path


@pytest.fixture
def torus(capsys: pytest.CaptureFixture[str]) -> Torus:
    """Run ``torus cache``: exit status, output and errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(["cache", *arguments])
        return status, *capsys.readouterr()

    return run


def keys(disk: Path) -> list[str]:
    """Content addresses, last used first."""
    return [path.name for path in sorted((disk / "programs").iterdir(), key=lambda p: -p.stat().st_mtime)]


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


# list


def test_list(disk: Path, torus: Torus) -> None:
    status, out, _ = torus("list")
    head, *rows, last = out.splitlines()
    assert status == 0 and head.split() == ["KEY", "SIZE", "AGE", "USED", "PLATFORM", "PROGRAM"]
    assert [row.split()[0] for row in rows] == [key[:12] for key in keys(disk)]
    assert [row.split()[-3:] for row in rows] == [[used, "cpu", "add"] for used in ("2m", "1d", "2d")]
    assert last.startswith("3 programs, ") and last.endswith(f" in {disk}")


def test_list_leaves_the_time_of_use(disk: Path, torus: Torus) -> None:
    before = [path.stat().st_mtime for path in (disk / "programs").iterdir()]
    torus("list")
    torus("verify")
    assert [path.stat().st_mtime for path in (disk / "programs").iterdir()] == before


@pytest.mark.parametrize(("sort", "field", "reverse"), [("size", "size", True), ("age", "created", False)])
def test_list_sorted(disk: Path, torus: Torus, sort: str, field: str, reverse: bool) -> None:
    values = [entry[field] for entry in json.loads(torus("list", "--json", "--sort", sort)[1])]
    assert values == sorted(values, reverse=reverse) and len(values) == 3


def test_list_json_and_limit(disk: Path, torus: Torus) -> None:
    (entry,) = json.loads(torus("list", "--json", "--limit", "1")[1])
    assert entry["key"] == keys(disk)[0] and entry["summary"] == "add" and entry["kernels"] is False
    assert abs(time.time() - entry["created"]) < 100 and entry["platform"] == "cpu"


def test_list_shows_what_is_bad(disk: Path, torus: Torus) -> None:
    (disk / "programs" / keys(disk)[0]).write_bytes(b"nonsense")
    status, out, _ = torus("list")
    assert status == 0 and "(bad: not an entry of this cache)" in out


# explain


def test_explain(disk: Path, torus: Torus) -> None:
    status, out, _ = torus("explain", keys(disk)[0][:10])
    assert status == 0 and out.startswith(keys(disk)[0])
    assert "jaxlib" in out and "another version does not load this code" in out and "versions of torus" in out


def test_explain_against_this_machine(disk: Path, torus: Torus, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "This machine asks for the same." in torus("explain", keys(disk)[0], "--here")[1]
    monkeypatch.setenv("XLA_FLAGS", "--xla_x=1")
    out = torus("explain", keys(disk)[0], "--here")[1]
    assert out.endswith("This machine asks for another program:\n  XLA_FLAGS: (none) -> --xla_x=1\n")


def test_explain_the_last_misses(disk: Path, torus: Torus) -> None:
    code = """
import torus.runtime as r
from tests.runtime.caches import LARGE, get, works
from tests.runtime.conftest import add_program
r.programs.get_or_compile(*add_program(3))
r.programs.get_or_compile(*add_program(3), 0, {"xla_cpu_use_fusion_emitters": False})
"""
    env = environment(TORUS_CACHE_DIR=str(disk.parent))
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH + code], env=env, check=True, timeout=60)
    status, out, _ = torus("explain", "--last-misses")
    assert status == 0 and "1 miss: options changed\n" in out
    assert '    options: {} -> {"xla_cpu_use_fusion_emitters": false}\n' in out and "nearest: " in out
    (record,) = json.loads((disk / LAST).read_text())["misses"]
    (disk / "programs" / record["program"]).unlink()
    status, out, _ = torus("explain", record["program"][:16])
    assert status == 0 and out.startswith(f"not in {disk}; it was asked for:") and "options changed" in out


# verify


@pytest.mark.parametrize("place", ["disk", "shared"])
def test_verify(disk: Path, torus: Torus, tmp_path: Path, place: str) -> None:
    shared = tmp_path / "shared"
    torus("copy", "disk", str(shared))
    where = str(disk if place == "disk" else shared)
    assert torus("verify", where) == (0, f"3 programs, 3 signatures in {where}: all good\n", "")
    bad = keys(Path(where))[0]
    damage(Path(where) / "programs" / bad)
    answer = (
        f"bad: {bad}: damaged or truncated: its checksum does not match\n3 programs, 3 signatures in {where}: 1 bad"
    )
    assert torus("verify", where) == (1, f"{answer}\n", "")
    assert torus("verify", where, "--delete") == (1, f"{answer}, removed\n", "")
    assert torus("verify", where) == (0, f"2 programs, 2 signatures in {where}: all good\n", "")


def test_verify_signatures(disk: Path, torus: Torus, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    torus("copy", "disk", str(shared))
    damage(next((shared / "signatures").iterdir()))
    damage(disk / "index")
    for where in (shared, disk):
        status, out, _ = torus("verify", str(where), "--delete")
        assert status == 1 and "1 bad, removed" in out
        assert torus("verify", str(where))[0] == 0


# prune


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--older-than", "36h"], 2),
        (["--older-than", "30d"], 3),
        (["--max-size", "1GiB"], 3),
        (["--max-size", "0"], 0),
        (["--all"], 0),
        (["--all", "--dry-run"], 3),
        (["--older-than", "12h", "--max-size", "1GiB"], 1),
    ],
)
def test_prune(disk: Path, torus: Torus, options: list[str], left: int) -> None:
    before = keys(disk)
    status, out, _ = torus("prune", *options)
    assert status == 0 and keys(disk) == before[:left]
    gone = 3 if "--dry-run" in options else 3 - left
    assert out.startswith(f"{'would remove' if '--dry-run' in options else 'removed'} {gone} of 3 programs, ")
    assert len(DiskCache(disk, LARGE).signature_keys()) == left


def test_prune_to_a_size_keeps_what_was_used_last(disk: Path, torus: Torus) -> None:
    newest = keys(disk)[0]
    torus("prune", "--max-size", str((disk / "programs" / newest).stat().st_size))
    assert keys(disk) == [newest]


def test_prune_a_shared_store(disk: Path, torus: Torus, bucket: ObjectStore) -> None:  # noqa: F811
    url = f"s3://{BUCKET}/team"
    torus("copy", "disk", url)
    assert torus("prune", url, "--all")[0] == 0 and bucket.objects == {}


# copy


def test_copy(disk: Path, torus: Torus, bucket: ObjectStore, tmp_path: Path) -> None:  # noqa: F811
    url = f"s3://{BUCKET}/team"
    size = sum(path.stat().st_size for path in (disk / "programs").iterdir())
    done = f"copied 3 programs ({size / 1000:.1f} kB) and 3 signatures from {disk} to {url}\n"
    assert torus("copy", "disk", url) == (0, done, "")
    nothing = f"copied 0 programs (0 B) and 0 signatures from {disk} to {url}\n"
    assert torus("copy", "disk", url) == (0, nothing, "")
    assert torus("copy", url, str(tmp_path / "folder"))[0] == 0
    cache = ProgramCache(lambda: None, Counters())
    found = ObjectCache(open_store(str(tmp_path / "folder")))
    assert {kept.key for kept in found.entries()} == set(keys(disk)) == {get(cache, size).key for size in SIZES}


def test_copy_to_the_disk(disk: Path, torus: Torus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torus("copy", "disk", str(tmp_path / "shared"))
    monkeypatch.setenv("TORUS_CACHE_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT", str(tmp_path / "shared"))
    assert torus("copy", "shared", "disk")[0] == 0
    cache = ProgramCache(lambda: DiskCache(tmp_path / "elsewhere" / "default", LARGE), Counters())
    for size in SIZES:
        found = cache.lookup_signature(b"%d" % size, 0)
        assert found is not None and works(found[0])
    assert cache.stats()["disk_hits"] == 3


def test_copy_leaves_out_what_is_bad(disk: Path, torus: Torus, tmp_path: Path) -> None:
    bad = keys(disk)[0]
    damage(disk / "programs" / bad)
    status, out, err = torus("copy", "disk", str(tmp_path / "shared"))
    assert status == 1 and "copied 2 programs" in out and "1 bad, left out" in out and f"bad: {bad}" in err
    assert not (tmp_path / "shared" / "programs" / bad).exists() and (disk / "programs" / bad).exists()


# warm

_SCRIPT = """
import sys
sys.modules["torch"] = None
import torus.runtime as r
from tests.runtime.caches import LARGE, get, works
from tests.runtime.conftest import add_program
r.programs.get_or_compile(*add_program(int(sys.argv[1])))
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A script that adds vectors of a size and ends with a status."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([environment()["PYTHONPATH"], str(Path(__file__).parents[2])]))
    path = tmp_path / "script.py"
    path.write_text(_SCRIPT)
    return str(path)


def test_warm(disk: Path, torus: Torus, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORUS_CACHE_ONLY", "1")
    monkeypatch.setenv("TORCH_TPU_TIER2_COMPILATION_CACHE", "disabled")
    status, out, _ = torus("warm", script, "7", "0")
    first, last = out.splitlines()
    assert status == 0 and first.endswith(" s: add")
    assert last.startswith("1 request: 0 from memory, 0 from disk, 0 from the shared store, 1 compiled in ")
    status, out, _ = torus("warm", script, "7", "3")
    assert status == 3 and "1 from disk, 0 from the shared store, 0 compiled" in out


def test_warm_from_written_misses(disk: Path, torus: Torus, tmp_path: Path) -> None:
    cache = ProgramCache(lambda: None, Counters())
    cache.dump_misses = tmp_path / "dump"
    key = get(cache, 9).key
    get(cache, 9, xla_cpu_use_fusion_emitters=False)
    other = json.loads((tmp_path / "dump" / f"{key}.json").read_text())
    other["components"]["platform"] = "tpu"
    (tmp_path / "dump" / "other.json").write_text(json.dumps(other))
    command = [sys.executable, "-m", "torus", "cache", "warm", "--from", str(tmp_path / "dump")]
    env = environment(TORUS_CACHE_DIR=str(disk.parent))
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "2 compiled in" in done.stdout, done
    assert "1 program for other platforms than cpu left out" in done.stdout
    assert key in keys(disk) and len(keys(disk)) == 5


# Mistakes


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("list NOWHERE", "there is no cache at .*nowhere"),
        ("list shared", "TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT names it"),
        ("list nonsense://x", "nonsense://x cannot be opened"),
        ("explain", "give a KEY, or --last-misses"),
        ("explain abc --last-misses", "give a KEY, or --last-misses"),
        ("explain zzz", "has no program zzz"),
        ("explain --last-misses", "no process has recorded misses"),
        ("prune", "give --older-than, --max-size or --all"),
        ("copy disk disk", "are the same cache"),
        ("copy NOWHERE disk", "there is no cache at .*nowhere"),
        ("warm", "give a SCRIPT, or --from FOLDER"),
        ("warm NOWHERE", "there is no script .*nowhere"),
        ("warm --from NOWHERE", "holds no programs"),
    ],
)
def test_mistakes_are_told_in_one_line(disk: Path, torus: Torus, tmp_path: Path, command: str, answer: str) -> None:
    status, _, err = torus(*command.replace("NOWHERE", str(tmp_path / "nowhere")).split())
    assert status == 2 and err.startswith("torus: error: ") and err.count("\n") == 1
    assert re.search(answer, err), err


def test_an_empty_store(torus: Torus) -> None:
    assert torus("list", "memory://nothing-here") == (0, "0 programs, 0 B in memory://nothing-here\n", "")


def test_a_key_that_is_not_unique(disk: Path, torus: Torus) -> None:
    for name in ("aa1", "aa2"):
        (disk / "programs" / name).write_bytes(b"")
    assert torus("explain", "aa")[::2] == (
        2,
        f"torus: error: aa is the beginning of 2 keys in {disk}; give more of it\n",
    )


@pytest.mark.parametrize("variable", ["TORUS_CACHE_SIZE", "TORCH_TPU_TIER2_COMPILATION_CACHE"])
def test_settings_that_cannot_be(disk: Path, torus: Torus, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "disabled")
    status, _, err = torus("list")
    assert status == 2 and variable in err


def test_a_store_that_fails(torus: Torus, bucket: ObjectStore) -> None:  # noqa: F811
    bucket.status = 403
    status, _, err = torus("list", f"s3://{BUCKET}/team")
    assert status == 2 and err.startswith("torus: error: ") and err.count("\n") == 1
