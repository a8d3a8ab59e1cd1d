"""Places for small named objects: a folder, which needs nothing, or whatever fsspec opens (S3, GCS, memory, ...)."""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from torus.runtime.cache_errors import Unusable

_LOCAL = ("file://", "local://")
_BUCKETS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory"}
"""Where an object needs no folder; making one could make a bucket."""

_FIRST = 4 << 20
"""Bytes of the first request for an object; most programs are smaller."""


class Stored(NamedTuple):
    """One object of a listing: its name below the folder, bytes, and when it was written (seconds since 1970)."""

    name: str
    size: int
    written: float


class Store(Protocol):
    """Objects by name, such as ``programs/3f2a``. Every method may raise OSError."""

    where: str

    def read(self, name: str, size: int | None = None) -> bytes | None:
        """An object, or its first `size` bytes; None if there is none."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Make or replace an object; readers see the whole of it or nothing."""
        ...

    def remove(self, name: str) -> None:
        """Remove an object if it is there."""
        ...

    def listing(self, folder: str) -> list[Stored]:
        """The objects whose names begin with ``folder/``."""
        ...


def open_store(where: str) -> Store:
    """The store at a path or URL; nothing is read or made. Raises Unusable, and says what is missing."""
    scheme = next((scheme for scheme in _LOCAL if where.startswith(scheme)), "")
    if scheme or "://" not in where:
        return Folder(Path(where.removeprefix(scheme)).expanduser())
    return Remote(where)


class Folder:
    """Objects as files. Raises Unusable where everybody may write: they would be run as code."""

    def __init__(self, path: Path) -> None:
        self.path, self.where = path, str(path)
        for directory in (path, path / "programs", path / "signatures"):
            with contextlib.suppress(FileNotFoundError):
                if directory.stat().st_mode & 0o002:
                    raise Unusable(f"{directory} can be written by everybody (chmod o-w it)")

    def read(self, name: str, size: int | None = None) -> bytes | None:
        try:
            with open(self.path / name, "rb") as file:
                return file.read(-1 if size is None else size)
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{os.getpid()}-{secrets.token_hex(8)}")
        try:
            aside.write_bytes(data)
            aside.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                aside.unlink()
            raise

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def listing(self, folder: str) -> list[Stored]:
        try:
            items = list(os.scandir(self.path / folder))
        except FileNotFoundError:
            return []
        found = [(item.name, item.stat()) for item in items if item.is_file() and not item.name.startswith(".")]
        return [Stored(name, status.st_size, status.st_mtime) for name, status in found]


class Remote:
    """Objects behind an fsspec URL. Raises Unusable if fsspec or the package of the protocol is missing."""

    def __init__(self, url: str) -> None:
        self.where = url
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise Unusable(f"{url} needs fsspec; run: pip install 'torus[shared]'") from None
        try:
            self._files, root = url_to_fs(url)
        except (ImportError, ValueError, OSError) as error:  # a protocol whose package is missing, or an unknown one
            raise Unusable(f"{url} cannot be opened: {error}") from None
        self._root = root.rstrip("/")
        self._makes_folders = url.split("://")[0].lower() not in _BUCKETS

    def read(self, name: str, size: int | None = None) -> bytes | None:
        # Asked for a whole object, some file systems first ask for its size, and list the bucket if it is not there.
        path, first = f"{self._root}/{name}", _FIRST if size is None else size
        try:
            with _errors():
                start = bytes(self._files.cat_file(path, start=0, end=first))
                return bytes(self._files.cat_file(path)) if size is None and len(start) == first else start
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        path = f"{self._root}/{name}"
        with _errors():
            try:
                self._files.pipe_file(path, data)
            except FileNotFoundError:
                if not self._makes_folders:
                    raise
                self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._files.pipe_file(path, data)

    def remove(self, name: str) -> None:
        with _errors(), contextlib.suppress(FileNotFoundError):
            self._files.rm_file(f"{self._root}/{name}")

    def listing(self, folder: str) -> list[Stored]:
        try:
            with _errors():
                self._files.invalidate_cache()
                found = self._files.find(f"{self._root}/{folder}", detail=True)
        except FileNotFoundError:
            return []
        return [Stored(path.rpartition("/")[2], int(info["size"] or 0), _written(info)) for path, info in found.items()]


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """The errors of every file system as OSError."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


def _written(info: dict[str, Any]) -> float:
    """When an object was written, in the words of its file system; 0.0 if it does not say."""
    for name in ("LastModified", "last_modified", "mtime", "updated", "created"):
        value = info.get(name)
        if isinstance(value, datetime.datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                return datetime.datetime.fromisoformat(value).timestamp()
    return 0.0
