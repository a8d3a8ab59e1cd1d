"""How a compiled program and a signature are written: the same bytes on disk and in a shared store.

A program is ``magic, SHA-256 of the rest, length, JSON header, executable``; a signature is ``magic, SHA-256 of the
rest, key, content address, metadata``. The checksum finds damage, not malice: who can write such a file can have any
code run.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torus.runtime.cache_errors import BadEntry
from torus.runtime.keys import address

_PROGRAM, _SIGNATURE = b"TORUSPG\x01", b"TORUSSG\x01"
_START = len(_PROGRAM) + 32
_LENGTH = struct.Struct("<I")
_HEAD = 1 << 16
"""So many bytes from the start hold the header of nearly every program."""


@dataclass(frozen=True)
class Entry:
    """One executable and what was written with it."""

    header: dict[str, Any]
    payload: bytes


class Signature(NamedTuple):
    """What a caller's key means: the content address of a program, and what the caller wants to know of it."""

    program: str
    metadata: bytes


def pack(key: str, header: dict[str, Any], payload: bytes) -> bytes:
    """The file of a program."""
    text = json.dumps(header | {"key": key}, sort_keys=True).encode()
    return _seal(_PROGRAM, _LENGTH.pack(len(text)) + text + payload)


def parse(key: str, data: bytes) -> Entry:
    """What `pack` wrote for this content address. Raises BadEntry for anything else."""
    rest = _unseal(_PROGRAM, data)
    header, size = _header(rest)
    if header.get("key") != key:
        raise BadEntry(f"the entry of another program ({str(header.get('key'))[:12]})")
    if address(header.get("components", {})) != key:
        raise BadEntry("not made from what its name says")
    return Entry(header, bytes(rest[_LENGTH.size + size :]))


def read_header(read: Callable[[int], bytes | None]) -> dict[str, Any] | None:
    """The header of a program, not verified; None if there is none. ``read(n)`` are the first n bytes of its file.

    Raises BadEntry.
    """
    start = read(_HEAD)
    if start is None:
        return None
    if not start.startswith(_PROGRAM) or len(start) < _START + _LENGTH.size:
        raise BadEntry("not an entry of this cache")
    (size,) = _LENGTH.unpack_from(start, _START)
    needed = _START + _LENGTH.size + int(size)
    if needed > len(start) == _HEAD:
        start = read(needed) or b""
    return _header(memoryview(start)[_START:])[0]


def pack_signature(key: bytes, found: Signature) -> bytes:
    """The file of a signature; `key` has 32 bytes."""
    return _seal(_SIGNATURE, key + bytes.fromhex(found.program) + found.metadata)


def parse_signature(key: bytes, data: bytes) -> Signature:
    """What `pack_signature` wrote for `key`. Raises BadEntry for anything else."""
    rest = _unseal(_SIGNATURE, data)
    if rest[:32] != key or len(rest) < 64:
        raise BadEntry("the record of another signature")
    return Signature(rest[32:64].hex(), bytes(rest[64:]))


def _seal(magic: bytes, rest: bytes) -> bytes:
    return magic + hashlib.sha256(rest).digest() + rest


def _unseal(magic: bytes, data: bytes) -> memoryview:
    if not data.startswith(magic):
        raise BadEntry("not an entry of this cache" if len(data) >= len(magic) else "truncated")
    rest = memoryview(data)[_START:]
    if hashlib.sha256(rest).digest() != data[len(magic) : _START]:
        raise BadEntry("damaged or truncated: its checksum does not match")
    return rest


def _header(rest: memoryview) -> tuple[dict[str, Any], int]:
    """The header and its length in bytes."""
    try:
        (size,) = _LENGTH.unpack_from(rest)
        found = json.loads(bytes(rest[_LENGTH.size : _LENGTH.size + size]))
    except (struct.error, ValueError):
        raise BadEntry("its header is not understood") from None
    if not isinstance(found, dict):
        raise BadEntry("its header is not understood")
    return found, int(size)
