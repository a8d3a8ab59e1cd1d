"""Compiled programs in a `Store`: an object for each program and for each signature, so that no lookup needs a listing.

``programs/<content address>`` and ``signatures/<key in hexadecimal>``, both as `torus.runtime.entry` says. Whoever can
write there decides what its readers run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from torus.runtime.cache_errors import BadEntry
from torus.runtime.entry import Entry, Signature, pack, pack_signature, parse, parse_signature, read_header
from torus.runtime.stores import Store
from torus.runtime.tier import BadSignature, Kept


class ObjectCache:
    """The programs and signatures in a store. Methods raise BadEntry and OSError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def where(self) -> str:
        """The path or URL."""
        return self._store.where

    def load(self, key: str) -> Entry | None:
        """The verified entry of a content address; None if there is none."""
        data = self._store.read(_program(key))
        return None if data is None else parse(key, data)

    peek = load

    def header(self, key: str) -> dict[str, Any] | None:
        """What was written with an entry, not verified; None if there is none."""
        return read_header(lambda size: self._store.read(_program(key), size))

    def store(self, key: str, header: dict[str, Any], payload: bytes) -> None:
        """Write an entry."""
        self._store.write(_program(key), pack(key, header, payload))

    def signature(self, key: bytes) -> Signature | None:
        """What was recorded for a 32-byte key."""
        data = self._store.read(_signature(key))
        return None if data is None else parse_signature(key, data)

    def add_signature(self, key: bytes, program: str, metadata: bytes) -> None:
        """Record a signature."""
        self._store.write(_signature(key), pack_signature(key, Signature(program, metadata)))

    def entries(self) -> list[Kept]:
        """Every program."""
        return [Kept(*stored) for stored in self._store.listing("programs")]

    def signature_keys(self) -> set[bytes]:
        """The keys of all signatures."""
        return {_key(stored.name) for stored in self._store.listing("signatures")}

    def signatures(self) -> Iterator[tuple[bytes, Signature | BadSignature]]:
        """Every signature; a bad one with the reason."""
        for key in sorted(self.signature_keys()):
            try:
                found = self.signature(key)
            except BadEntry as error:
                yield key, BadSignature(str(error))
                continue
            if found is not None:
                yield key, found

    def remove(self, keys: Collection[str]) -> None:
        """Remove programs, and the signatures that mean them."""
        for key in keys:
            self._store.remove(_program(key))
        for signature, found in self.signatures():
            if isinstance(found, Signature) and found.program in keys:
                self.remove_signature(signature)

    def remove_signature(self, key: bytes) -> None:
        """Remove one signature."""
        self._store.remove(_signature(key))


def _program(key: str) -> str:
    return f"programs/{key}"


def _signature(key: bytes) -> str:
    return f"signatures/{key.hex()}"


def _key(name: str) -> bytes:
    """The key in the name of an object; a foreign name is a key that nothing has."""
    try:
        return bytes.fromhex(name)
    except ValueError:
        return name.encode()
