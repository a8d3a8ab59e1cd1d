"""Where programs are kept outside of memory: the disk of this host, and behind it a shared store.

Whatever goes wrong with either is said once and worked around: at worst a program is compiled.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from torus.runtime import forks
from torus.runtime.cache_errors import BadEntry, CacheWarning, Unusable
from torus.runtime.disk_cache import DiskCache
from torus.runtime.entry import Entry, Signature
from torus.runtime.shared_tier import SharedTier, Warn

T = TypeVar("T")
OpenShared = Callable[[Warn], SharedTier | None]


class Tiers:
    """The disk cache that `open_disk` opens at first use, and the shared store of `open_shared`; each may be None."""

    def __init__(self, open_disk: Callable[[], DiskCache | None], open_shared: OpenShared = lambda warn: None) -> None:
        self._open_disk, self._open_shared = open_disk, open_shared
        self._disk: DiskCache | None = None
        self._shared: SharedTier | None = None
        self._opened = self._read_only = False
        self._bad: dict[str, str] = {}
        self._warned: set[str] = set()
        forks.now_and_in_children(self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def disk(self) -> DiskCache | None:
        """The disk cache; None where it is disabled or unusable (which is reported once)."""
        self._open()
        return self._disk

    def shared(self) -> SharedTier | None:
        """The shared store; None where there is none."""
        self._open()
        return self._shared

    @property
    def keeps(self) -> bool:
        """Whether anything that is stored now will be there later."""
        self._open()
        return self._writable_disk() is not None or (self._shared is not None and self._shared.writes)

    def load(self, key: str, use: Callable[[Entry], T], nearby: bool = False) -> tuple[T, Entry, str] | None:
        """What `use` makes of the entry of a content address, the entry, and the tier that had it; with `nearby` not
        the shared store. What `use` cannot use is as good as absent.
        """
        tiers = {"disk": self.disk(), "shared": None if nearby else self.shared()}
        for name, tier in tiers.items():
            found = self._load(tier, key, use) if tier is not None else None
            if found is None:
                continue
            made, entry = found
            if name == "shared":
                self._on_disk(functools.partial(_copy, key, entry))
            return made, entry, name
        return None

    def _load(self, tier: DiskCache | SharedTier, key: str, use: Callable[[Entry], T]) -> tuple[T, Entry] | None:
        try:
            entry = tier.load(key)
            if entry is None:
                return None
            made = use(entry)
        except BadEntry as error:
            self._report_bad(key, tier.where, str(error))
            return None
        except ImportError:
            return None  # another thread is importing JAX at this moment: nothing is wrong with the entry
        except Exception as error:
            tier.discard(key)
            self._report_bad(key, tier.where, f"this runtime does not load it: {error}")
            return None
        self.take_bad(key)
        return made, entry

    def store(self, key: str, header: dict[str, Any], payload: bytes) -> None:
        """Keep a program."""
        self._on_disk(lambda disk: disk.store(key, header, payload))
        if (shared := self.shared()) is not None:
            shared.store(key, header, payload)

    def signature(self, key: bytes) -> Signature | None:
        """What was recorded for a 32-byte key."""
        disk, shared = self.disk(), self.shared()
        found = disk.signature(key) if disk is not None else None
        if found is None and shared is not None:
            found = shared.signature(key)
            if found is not None:
                program, metadata = found
                self._on_disk(lambda disk: disk.add_signature(key, program, metadata))
        return found

    def add_signature(self, key: bytes, program: str, metadata: bytes) -> None:
        """Record a signature."""
        self._on_disk(lambda disk: disk.add_signature(key, program, metadata))
        if (shared := self.shared()) is not None:
            shared.add_signature(key, program, metadata)

    def made_from(self, program: str) -> list[dict[str, str]]:
        """The components of every entry that the disk has had with this hash of the program text."""
        disk = self.disk()
        return disk.made_from(program) if disk is not None else []

    def take_bad(self, key: str) -> str | None:
        """Why an entry was not used, told once."""
        with self._lock:
            return self._bad.pop(key, None)

    def clear(self, disk: bool) -> None:
        """Forget what was bad or absent, and with `disk` everything on the disk."""
        with self._lock:
            self._bad.clear()
        if (shared := self.shared()) is not None:
            shared.forget()
        if disk:
            self._on_disk(lambda found: found.clear(), always=True)

    def stats(self) -> dict[str, Any]:
        """What is kept, and where."""
        disk, shared = self.disk(), self.shared()
        entries, size = disk.usage() if disk is not None else (0, 0)
        nothing = {"shared": None, "shared_readable": False, "shared_writable": False}
        return {
            "entries": entries,
            "bytes": size,
            "limit": disk.limit if disk is not None else 0,
            "path": str(disk.path) if disk is not None else None,
            "writable": self._writable_disk() is not None,
            "damaged_records": disk.index.damaged if disk is not None else 0,
            **(shared.stats() if shared is not None else {**nothing, "uploads": 0, "uploads_pending": 0}),
        }

    def warn(self, what: str, message: str) -> None:
        """Say something once."""
        with self._lock:
            if what in self._warned:
                return
            self._warned.add(what)
        warnings.warn(message, CacheWarning, stacklevel=3)

    def _open(self) -> None:
        if not self._opened:
            with self._lock:
                if not self._opened:
                    self._disk = self._open_or_warn()
                    self._shared = self._open_shared(self.warn)
                    self._opened = True

    def _open_or_warn(self) -> DiskCache | None:
        try:
            return self._open_disk()
        except Unusable as error:
            unused = "the program cache on disk is not used, programs are kept in memory only"
            self.warn("unusable", f"{unused}: {error}")
            return None

    def _writable_disk(self) -> DiskCache | None:
        return None if self._read_only else self._disk

    def _on_disk(self, action: Callable[[DiskCache], None], always: bool = False) -> None:
        disk = self.disk() if always or not self._read_only else None
        if disk is None:
            return
        try:
            action(disk)
        except OSError as error:
            self._read_only = True
            memory_only = "cannot be written, new programs are kept in memory only"
            self.warn("write", f"the program cache at {disk.path} {memory_only}: {error}")

    def _report_bad(self, key: str, where: str, reason: str) -> None:
        with self._lock:
            self._bad[key] = reason
        again = "is not used, at worst its program is compiled again"
        self.warn(key, f"entry {key[:12]} of the program cache at {where} {again}: {reason}")


def _copy(key: str, entry: Entry, disk: DiskCache) -> None:
    disk.store(key, entry.header, entry.payload)
