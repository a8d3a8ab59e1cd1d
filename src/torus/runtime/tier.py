"""What every place that keeps compiled programs can do, so that tools treat the disk and a shared store alike."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple, Protocol

from torus.runtime.entry import Entry, Signature


class Kept(NamedTuple):
    """One program as a listing shows it: content address, bytes, and when it was last used or, in a shared store,
    written (seconds since 1970).
    """

    key: str
    size: int
    used: float


class Tier(Protocol):
    """Programs by content address, and signatures by their 32-byte keys. Methods may raise OSError."""

    @property
    def where(self) -> str:
        """The path or URL."""
        ...

    def load(self, key: str) -> Entry | None:
        """The verified entry, marked as used. Raises BadEntry."""
        ...

    def peek(self, key: str) -> Entry | None:
        """As `load`; nothing is marked, and nothing removed."""
        ...

    def header(self, key: str) -> dict[str, Any] | None:
        """What was written with an entry, not verified, without reading all of it. Raises BadEntry."""
        ...

    def store(self, key: str, header: dict[str, Any], payload: bytes) -> None:
        """Keep an entry. Raises OSError."""
        ...

    def signature(self, key: bytes) -> Signature | None:
        """What was recorded for a key. Raises BadEntry."""
        ...

    def add_signature(self, key: bytes, program: str, metadata: bytes) -> None:
        """Record a signature."""
        ...

    def entries(self) -> list[Kept]:
        """Every program."""
        ...

    def signature_keys(self) -> set[bytes]:
        """The keys of all signatures."""
        ...

    def signatures(self) -> Iterator[tuple[bytes, Signature | BadSignature]]:
        """Every signature, the newest of a key; a bad one with the reason."""
        ...

    def remove(self, keys: Collection[str]) -> None:
        """Remove programs, and the signatures that mean them."""
        ...

    def remove_signature(self, key: bytes) -> None:
        """Remove one signature."""
        ...


class BadSignature(NamedTuple):
    """A record that cannot be used, and why."""

    reason: str
