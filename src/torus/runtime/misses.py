"""Why programs had to be compiled: what differs from the nearest program that is known."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

from torus.runtime import forks, keys

REMEMBERED = 1000
"""How many misses are remembered."""

LAST = "last-misses.json"
"""What the last process that compiled anything left in the disk cache's directory."""

_OP = re.compile(r"\b(?:stablehlo|chlo)\.(\w+)")
_PLAIN = {"constant", "reshape", "broadcast_in_dim", "convert", "return"}
"""Operations that say little about a program; they are named only when there are no others."""


def summary(stablehlo: str | bytes, operations: int = 6) -> str:
    """What a program does, for people: its operations in order of appearance, such as ``dot_general, add x2, tanh``."""
    if isinstance(stablehlo, bytes):
        return "(serialized)"
    counted = collections.Counter(_OP.findall(stablehlo))
    telling = {name: count for name, count in counted.items() if name not in _PLAIN} or counted
    shown = [f"{name} x{count}" if count > 1 else name for name, count in list(telling.items())[:operations]]
    return ", ".join([*shown, "..."] if len(telling) > operations else shown) or "(no operations)"


class Misses:
    """The misses of this process and the programs that it knows, to compare them with."""

    def __init__(self) -> None:
        forks.now_and_in_children(self._renew)
        self._known: dict[str, list[keys.Components]] = {}
        self._records: collections.deque[dict[str, Any]] = collections.deque(maxlen=REMEMBERED)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def know(self, components: keys.Components) -> None:
        """Remember a program that is there."""
        with self._lock:
            self._known.setdefault(components["program"], []).append(components)

    def add(self, record: dict[str, Any]) -> None:
        """Remember a miss."""
        with self._lock:
            self._records.append(record)

    def records(self) -> list[dict[str, Any]]:
        """Every miss that is remembered, oldest first."""
        with self._lock:
            return [dict(record) for record in self._records]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._known.clear()
            self._records.clear()

    def explain(
        self, key: str, components: keys.Components, bad: str | None, kept: list[keys.Components]
    ) -> dict[str, Any]:
        """The record of a miss: a `bad` entry, or what changed against the nearest program with its text, of this
        process or `kept` on disk.
        """
        record: dict[str, Any] = {"program": key, "why": "new program", "nearest": None, "changed": {}}
        record |= {"components": components, "time": round(time.time(), 3)}
        if bad is not None:
            return record | {"why": f"bad entry: {bad}", "nearest": key}
        with self._lock:
            known = [*self._known.get(components["program"], ()), *kept]
        if not known:
            return record
        nearest = min(known, key=lambda other: len(keys.differences(other, components)))
        names = keys.differences(nearest, components)
        why = ", ".join(names) + " changed" if names else "evicted or removed"
        changed = {name: (nearest.get(name), components.get(name)) for name in names}
        return record | {"why": why, "nearest": keys.address(nearest), "changed": changed}


def dump(directory: Path, record: dict[str, Any], stablehlo: str | bytes, request: dict[str, Any]) -> None:
    """Write a missed program and what it takes to compile it elsewhere: ``KEY.mlir`` (``KEY.mlirbc`` for bytes) and
    ``KEY.json``. Raises OSError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    name = record["program"]
    program = directory / f"{name}.{'mlir' if isinstance(stablehlo, str) else 'mlirbc'}"
    program.write_bytes(stablehlo.encode() if isinstance(stablehlo, str) else stablehlo)
    (directory / f"{name}.json").write_text(json.dumps({**record, **request, "file": program.name}, indent=1))


def write_report(path: Path, report: dict[str, Any]) -> None:
    """Replace the file by a report. Errors are ignored: this is for people, at the end of a process."""
    aside = path.with_name(f".{path.name}-{os.getpid()}")
    with contextlib.suppress(OSError):
        aside.write_text(json.dumps(report))
        aside.chmod(0o600)
        aside.replace(path)
