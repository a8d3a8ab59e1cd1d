"""A shared store as the cache uses it: it may be slow, break or forbid writing, and no computation may notice.

Reads wait for a limited time; writes happen in the background. The first failure is said once. After a failed read the
store is left alone, after a failed write it is only read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from torus.runtime import forks
from torus.runtime.cache_errors import BadEntry
from torus.runtime.entry import Entry, Signature
from torus.runtime.tier import Tier
from torus.runtime.uploads import Uploads, describe

SIGNATURE, PROGRAM = 10.0, 60.0
"""Seconds that a lookup waits for a signature and for a program."""

T = TypeVar("T")
Warn = Callable[[str, str], None]
"""``warn(what, message)``; each `what` is said once."""


class SharedTier:
    """The cache at `where`, opened at first use. It is not written to unless `writes`."""

    def __init__(self, where: str, open: Callable[[str], Tier], writes: bool, warn: Warn) -> None:
        self.where = where
        self.writes = writes
        self.readable = True
        self._open, self._warn = open, warn
        self._tier: Tier | None = None
        self._absent: set[object] = set()
        forks.now_and_in_children(self._renew)
        self._uploads = Uploads(lambda reason: self._fail(f"is not written to any more: {reason}", reading=False))

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def load(self, key: str) -> Entry | None:
        """The verified entry of a content address; None if the store does not have it or fails. Raises BadEntry."""
        return self._ask(key, PROGRAM, lambda tier: tier.load(key))

    def signature(self, key: bytes) -> Signature | None:
        """What was recorded for a 32-byte key; None as above."""
        try:
            return self._ask(key, SIGNATURE, lambda tier: tier.signature(key))
        except BadEntry as error:
            self._warn(key.hex(), f"signature {key.hex()[:12]} in {self.where} is not used: {error}")
            return None

    def store(self, key: str, header: dict[str, Any], payload: bytes) -> None:
        """Write an entry, later."""
        self._submit(key, lambda tier: tier.store(key, header, payload))

    def add_signature(self, key: bytes, program: str, metadata: bytes) -> None:
        """Record a signature, later."""
        self._submit(key, lambda tier: tier.add_signature(key, program, metadata))

    def discard(self, key: str) -> None:
        """Nothing: what others wrote stays, until the program that is compiled instead is written over it."""

    def forget(self) -> None:
        """Ask again for what was not there."""
        self._absent.clear()

    def flush(self, seconds: float) -> bool:
        """Wait until all is written; False if it is not by then, or never will be."""
        return self._uploads.flush(seconds)

    def stats(self) -> dict[str, Any]:
        """Where it is, whether it is still used, and what was written."""
        return {
            "shared": self.where,
            "shared_readable": self.readable,
            "shared_writable": self.readable and self.writes,
            "uploads": self._uploads.done,
            "uploads_pending": self._uploads.left if self.writes else 0,
        }

    def _ask(self, name: object, seconds: float, question: Callable[[Tier], T | None]) -> T | None:
        if name in self._absent or not self.readable:
            return None
        try:
            found = within(seconds, lambda: question(self._opened()))
        except BadEntry:
            raise
        except TimeoutError:
            self._fail(f"did not answer in {seconds:.0f} seconds and is left alone", reading=True)
            return None
        except Exception as error:
            self._fail(f"cannot be read and is left alone: {describe(error)}", reading=True)
            return None
        if found is None:
            self._absent.add(name)
        return found

    def _submit(self, name: object, action: Callable[[Tier], None]) -> None:
        self._absent.discard(name)
        if self.writes and self.readable:
            self._uploads.submit(lambda: action(self._opened()))

    def _opened(self) -> Tier:
        with self._lock:
            if self._tier is None:
                self._tier = self._open(self.where)
            return self._tier

    def _fail(self, reason: str, reading: bool) -> None:
        self.writes = False
        self.readable = self.readable and not reading
        self._uploads.stop()
        self._warn("shared", f"the shared program cache at {self.where} {reason}")


def within(seconds: float, action: Callable[[], T]) -> T:
    """What `action` returns or raises. Raises TimeoutError after so many seconds, and leaves it to itself."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(action())
        except BaseException as error:
            future.set_exception(error)

    # A thread of an executor would hold up the end of the process.
    threading.Thread(target=run, name="torus-shared", daemon=True).start()
    return future.result(seconds)
