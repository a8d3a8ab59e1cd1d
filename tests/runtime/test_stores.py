"""Small named objects: in a folder, in memory, and in an object store behind s3fs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec.config
import pytest

from tests.runtime.object_store import BUCKET, ObjectStore
from torus.runtime.cache_errors import Unusable
from torus.runtime.stores import Store, open_store


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A running object store that ``s3://`` means."""
    server = ObjectStore()
    options = {"endpoint_url": server.url, "key": "key", "secret": "secret"}
    monkeypatch.setitem(fsspec.config.conf, "s3", options)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(params=["folder", "file", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "s3":
        request.getfixturevalue("bucket")
    where = {
        "folder": str(tmp_path / "shared"),
        "file": f"file://{tmp_path}/shared",
        "memory": f"memory://{tmp_path.name}",
        "s3": f"s3://{BUCKET}/team",
    }
    return open_store(where[request.param])


def test_objects(store: Store) -> None:
    assert store.read("programs/a") is None and store.listing("programs") == []
    store.write("programs/a", b"first")
    store.write("programs/a", b"second")
    store.write("programs/b", b"")
    store.write("signatures/c", b"third")
    assert store.read("programs/a") == b"second" and store.read("programs/a", 3) == b"sec"
    assert sorted((s.name, s.size) for s in store.listing("programs")) == [("a", 6), ("b", 0)]
    assert all(stored.written > 1e9 for stored in store.listing("programs"))
    store.remove("programs/a")
    store.remove("programs/a")
    assert store.read("programs/a") is None and store.read("signatures/c") == b"third"


def test_a_read_is_one_request_and_no_listing(bucket: ObjectStore) -> None:
    store = open_store(f"s3://{BUCKET}/team")
    store.read("programs/absent")
    store.write("programs/there", b"x" * 100_000)
    bucket.requests.clear()
    assert store.read("programs/absent") is None and store.read("programs/there") == b"x" * 100_000
    assert bucket.requests == [("GET", "team/programs/absent"), ("GET", "team/programs/there")]


def test_a_large_object_goes_in_parts(bucket: ObjectStore) -> None:
    data = os.urandom(1 << 20) * 101
    store = open_store(f"s3://{BUCKET}/team")
    store.write("programs/large", data)
    assert ("POST", "team/programs/large") in bucket.requests
    assert store.read("programs/large") == data


def test_a_missing_bucket_is_not_made(bucket: ObjectStore) -> None:
    with pytest.raises(FileNotFoundError):
        open_store("s3://nowhere/team").write("programs/a", b"")
    assert bucket.objects == {}


def test_a_folder_shows_whole_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path))
    store.write("programs/a", b"whole")

    def fail(path: Path, target: Path) -> None:
        raise OSError(28, "full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="full"):
        store.write("programs/a", b"half")
    assert store.read("programs/a") == b"whole" and len(list((tmp_path / "programs").iterdir())) == 1


@pytest.mark.parametrize("name", ["", "programs", "signatures"])
def test_a_folder_that_everybody_can_write_is_refused(tmp_path: Path, name: str) -> None:
    open_store(str(tmp_path / "shared")).write("programs/a", b"")
    open_store(str(tmp_path / "shared")).write("signatures/a", b"")
    (tmp_path / "shared" / name).chmod(0o777)
    with pytest.raises(Unusable, match="can be written by everybody"):
        open_store(str(tmp_path / "shared"))


@pytest.mark.parametrize(("package", "answer"), [("fsspec", "pip install 'torus[shared]'"), ("s3fs", "s3fs")])
def test_a_missing_package_is_named(
    python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, package: str, answer: str
) -> None:
    code = f"""
sys.modules[{package!r}] = None
from torus.runtime.cache_errors import Unusable
from torus.runtime.stores import open_store
open_store({str(tmp_path)!r}).write("programs/a", b"")
try:
    open_store("s3://bucket/folder")
except Unusable as error:
    print(error)
"""
    assert answer in python(code).stdout


def test_an_unknown_protocol() -> None:
    with pytest.raises(Unusable, match=r"nonsense://x cannot be opened: .*nonsense"):
        open_store("nonsense://x")
