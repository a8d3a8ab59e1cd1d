"""Compiled programs on disk. They are machine code, so the directory is private and a doubtful entry is never loaded.

``programs/<content address>`` holds one executable each, as `torus.runtime.entry` says. ``index`` is an `IndexLog` of
signatures and of what each program was made from. Files appear whole (written aside, then renamed); the time of last
use is their mtime.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import stat
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from torus.runtime.cache_errors import BadEntry, Unusable
from torus.runtime.entry import Entry, Signature, pack, parse, read_header
from torus.runtime.index_log import IndexLog
from torus.runtime.keys import address
from torus.runtime.tier import BadSignature, Kept

_SIGNATURE, _PROGRAM = b"S", b"P"
_STALE = 3600.0
"""Seconds after which a temporary file belongs to a process that died."""


class DiskCache:
    """The cache at `path`, at most `limit` bytes. Raises Unusable if the directory cannot be made or is not private."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path, self.limit = path, limit
        self.programs = path / "programs"
        _make(path.parent)
        for directory in (path, self.programs):
            _make(directory)
            _check_private(directory)
        self.index = IndexLog(path / "index")
        self._bytes: int | None = None

    @property
    def where(self) -> str:
        """The path."""
        return str(self.path)

    def load(self, key: str) -> Entry | None:
        """The entry of a content address, marked as used now; None if there is none. Raises BadEntry, and removes such
        an entry.
        """
        path = self.programs / key
        try:
            return parse(key, _read(path, used=True))
        except FileNotFoundError:
            return None
        except (BadEntry, OSError) as error:
            self.discard(key)
            raise error if isinstance(error, BadEntry) else BadEntry(f"unreadable: {error.strerror or error}") from None

    def peek(self, key: str) -> Entry | None:
        """The entry of a content address, without a trace; None if there is none. Raises BadEntry."""
        data = self._peek(key)
        return None if data is None else parse(key, data)

    def header(self, key: str) -> dict[str, Any] | None:
        """What was written with an entry, not verified; None if there is none. Raises BadEntry."""
        return read_header(lambda size: self._peek(key, size))

    def _peek(self, key: str, size: int = -1) -> bytes | None:
        try:
            return _read(self.programs / key, used=False, size=size)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadEntry(f"unreadable: {error.strerror or error}") from None

    def store(self, key: str, header: dict[str, Any], payload: bytes) -> None:
        """Write an entry and note in the index what it was made from. Raises OSError."""
        data = pack(key, header, payload)
        if len(data) > self.limit:
            return
        self._replace(self.programs / key, data)
        components = header["components"]
        with self._locked():
            self.index.append(_PROGRAM, bytes.fromhex(components["program"]), json.dumps(components).encode())
        self._bytes = self.usage()[1] if self._bytes is None else self._bytes + len(data)
        if self._bytes > self.limit:
            self._evict()

    def discard(self, key: str) -> None:
        """Remove an entry that must not be used, whatever is in its place."""
        path = self.programs / key
        for remove in (path.unlink, path.rmdir):
            with contextlib.suppress(OSError):
                remove()

    def signature(self, key: bytes) -> Signature | None:
        """The content address and the metadata recorded for a 32-byte key."""
        found = self.index.lookup(_SIGNATURE, key)
        return _signature(found[-1]) if found else None

    def add_signature(self, key: bytes, program: str, metadata: bytes) -> None:
        """Record a signature. Raises OSError."""
        with self._locked():
            self.index.append(_SIGNATURE, key, bytes.fromhex(program) + metadata)

    def made_from(self, program: str) -> list[dict[str, str]]:
        """The components of every known entry with this hash of the program text."""
        return [json.loads(value) for value in self.index.lookup(_PROGRAM, bytes.fromhex(program))]

    def usage(self) -> tuple[int, int]:
        """``(entries, bytes)`` on disk now."""
        files = self._files()
        return len(files), sum(size for _, size, _ in files) + self.index.size()

    def entries(self) -> list[Kept]:
        """Every program."""
        return [Kept(path.name, size, used) for path, size, used in self._files()]

    def signature_keys(self) -> set[bytes]:
        """The keys of all signatures."""
        return {key for key, _ in self.index.newest(_SIGNATURE)}

    def signatures(self) -> Iterator[tuple[bytes, Signature | BadSignature]]:
        """Every signature, the newest of a key; a damaged record of the index with an empty key."""
        for key, value in self.index.newest(_SIGNATURE):
            yield key, _signature(value)
        for _ in range(self.index.damaged):
            yield b"", BadSignature("a damaged record of the index")

    def remove(self, keys: Collection[str]) -> None:
        """Remove programs, and the records about them. Raises OSError."""
        with self._locked():
            for key in keys:
                self.discard(key)
            self.index.rewrite(lambda kind, key, value: _program_of(kind, value) not in keys, self._replace)
        self._bytes = None

    def remove_signature(self, key: bytes) -> None:
        """Remove a signature, and every damaged record. Raises OSError."""
        with self._locked():
            self.index.rewrite(lambda kind, other, _: (kind, other) != (_SIGNATURE, key), self._replace)

    def clear(self) -> None:
        """Remove everything."""
        with self._locked():
            for path, _, _ in self._files():
                path.unlink(missing_ok=True)
            self.index.rewrite(lambda kind, key, value: False, self._replace)
        self._bytes = None

    def _files(self) -> list[tuple[Path, int, float]]:
        """The entries with their size and the time of last use; removes what dead processes left."""
        found = []
        try:
            items = list(os.scandir(self.programs))
        except FileNotFoundError:  # somebody removed the cache while it is in use
            return []
        for item in items:
            try:
                status = item.stat(follow_symlinks=False)
                if not item.name.startswith("."):
                    found.append((Path(item.path), status.st_size, status.st_mtime))
                elif time.time() - status.st_mtime > _STALE:
                    os.unlink(item.path)
            except FileNotFoundError:
                continue
        return found

    def _evict(self) -> None:
        """Remove the least recently used entries until nine tenths of the limit are left, and their records."""
        with self._locked():
            files = sorted(self._files(), key=lambda file: file[2])
            total = sum(size for _, size, _ in files)
            while files and total > self.limit * 0.9:
                path, size, _ = files.pop(0)
                path.unlink(missing_ok=True)
                total -= size
            alive = {path.name for path, _, _ in files}
            self.index.rewrite(lambda kind, key, value: _program_of(kind, value) in alive, self._replace)
        self._bytes = None

    def _replace(self, path: Path, data: bytes) -> None:
        temporary = self.programs / f".{os.getpid()}-{secrets.token_hex(8)}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the directory against other processes and threads."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Unusable(f"{directory} cannot be made: {error.strerror or error}") from None


def _check_private(directory: Path) -> None:
    """The directory must be this user's, and nobody else may write to it."""
    status = directory.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise Unusable(f"{directory} is not a directory")
    _check_owner(status, str(directory), Unusable)


def _check_owner(status: os.stat_result, name: str, error: type[Exception]) -> None:
    if status.st_uid != os.geteuid():
        raise error(f"{name} belongs to user {status.st_uid}, not to {os.geteuid()}")
    if status.st_mode & 0o022:
        raise error(f"{name} can be written by others (mode {stat.S_IMODE(status.st_mode):03o}; chmod go-w it)")


def _program_of(kind: bytes, value: bytes) -> str:
    """The content address that a record of the index is about."""
    return value[:32].hex() if kind == _SIGNATURE else address(json.loads(value))


def _signature(value: bytes) -> Signature:
    return Signature(value[:32].hex(), value[32:])


def _read(path: Path, used: bool, size: int = -1) -> bytes:
    """The file, or its first `size` bytes; with `used` it is marked as used now."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise BadEntry("not a regular file")
        _check_owner(status, "the file", BadEntry)
        data = file.read(size)
        if used:
            with contextlib.suppress(OSError):
                os.utime(descriptor)
    return data
