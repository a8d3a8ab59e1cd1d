"""A table of small records in one append-only file, shared by any number of processes.

A record is ``magic, length, checksum, kind, key, value``. Appending is one write under a file lock. A reader takes in
the whole file at once and later only what was added, so that a lookup costs a dictionary access and a checksum. A
damaged record is skipped.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path

from torus.runtime import forks

_MAGIC = b"\xf5TR\x01"
_HEAD = struct.Struct("<4sI16s")
_KEY = 33
"""One byte of kind and a key of 32 bytes."""

Key = tuple[bytes, bytes]


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()[:16]


class IndexLog:
    """The table at `path`; the caller holds the directory's lock around `append` and `rewrite`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = 0
        self._records: dict[bytes, list[bytes]] = {}
        self._inode = -1
        self._parsed = 0
        forks.now_and_in_children(self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def lookup(self, kind: bytes, key: bytes) -> list[bytes]:
        """The values recorded for a key, oldest first."""
        with self._lock:
            found = self._verified(kind + key)
            if not found and self._refresh():
                found = self._verified(kind + key)
            return found

    def newest(self, kind: bytes) -> list[tuple[bytes, bytes]]:
        """Every key of a kind with its newest value."""
        with self._lock:
            self._refresh()
            found = [(key[1:], self._verified(key)) for key in list(self._records) if key[:1] == kind]
        return [(key, values[-1]) for key, values in found if values]

    def append(self, kind: bytes, key: bytes, value: bytes) -> None:
        """Add a record. Raises OSError."""
        body = kind + key + value
        record = _HEAD.pack(_MAGIC, len(body), _checksum(body)) + body
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, 0o600)
        try:
            before = os.fstat(descriptor).st_size
            if os.write(descriptor, record) != len(record):
                os.ftruncate(descriptor, before)
                raise OSError(28, "no space left for a record", str(self.path))
        finally:
            os.close(descriptor)

    def rewrite(self, keep: Callable[[bytes, bytes, bytes], bool], replace: Callable[[Path, bytes], None]) -> None:
        """Keep the newest record of each value for which ``keep(kind, key, value)`` holds; `replace` writes a file
        atomically.
        """
        with self._lock:
            self._refresh()
            kept: dict[bytes, None] = {}
            for records in self._records.values():
                kept.update((r, None) for r in records if self._good(r) and keep(r[24:25], r[25:57], r[57:]))
            replace(self.path, b"".join(kept))
            self._forget()

    def size(self) -> int:
        """Bytes of the file."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def _forget(self) -> None:
        self._records, self._inode, self._parsed = {}, -1, 0

    def _refresh(self) -> bool:
        """Take in what was added since the last time; whether there was anything."""
        try:
            status = os.stat(self.path)
            if status.st_ino != self._inode or status.st_size < self._parsed:
                self._forget()
                self._inode = status.st_ino
            if status.st_size == self._parsed:
                return False
            with open(self.path, "rb") as file:
                file.seek(self._parsed)
                data = file.read()
        except OSError:
            self._forget()
            return False
        self._parsed += self._parse(data)
        return True

    def _parse(self, data: bytes) -> int:
        """Take in the records of `data`; how many bytes were complete."""
        at, end = 0, len(data)
        while at + _HEAD.size <= end:
            magic, length, _ = _HEAD.unpack_from(data, at)
            if magic != _MAGIC or length < _KEY:
                self.damaged += 1
                at = data.find(_MAGIC, at + 1)
                if at < 0:
                    return end
                continue
            stop = at + _HEAD.size + length
            if stop > end:
                # Still being written, unless another record follows its head: then its writer died.
                following = data.find(_MAGIC, at + 1)
                if following < 0:
                    return at
                self.damaged += 1
                at = following
                continue
            start = at + _HEAD.size
            self._records.setdefault(data[start : start + _KEY], []).append(data[at:stop])
            at = stop
        return at

    def _verified(self, key: bytes) -> list[bytes]:
        records = self._records.get(key)
        if not records:
            return []
        good = [record for record in records if self._good(record)]
        if len(good) != len(records):
            self.damaged += len(records) - len(good)
            self._records[key] = good
        return [record[57:] for record in good]

    @staticmethod
    def _good(record: bytes) -> bool:
        return record[8:24] == _checksum(record[24:])
