"""Compiled programs: from memory, else from disk, else compiled once, whichever thread asks first.

`ProgramCache` is the mechanism; the functions below it act on the one of this process. Nothing here loads JAX until a
program is needed.
"""

from __future__ import annotations

import collections
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from torus import settings
from torus.runtime import client, keys
from torus.runtime.counting import Counters, counters
from torus.runtime.disk_cache import BadEntry, DiskCache, Unusable

Aval = tuple[tuple[int, ...], str]
_EXPLAINED = 1000
"""How many misses are remembered."""


class CacheWarning(RuntimeWarning):
    """The program cache met something that it worked around."""


class Program:
    """One executable on one device. ``execute(arrays).consume_with_handlers(handlers)`` runs it; `key` is its content
    address.
    """

    __slots__ = ("__weakref__", "device_index", "executable", "execute", "handlers", "key", "out_avals")

    def __init__(self, key: str, executable: Any, out_avals: Sequence[Aval], device_index: int) -> None:
        from torus.runtime import jaxlib_adapter as adapter

        self.key = key
        self.executable = executable
        self.out_avals = list(out_avals)
        self.device_index = device_index
        self.execute, self.handlers = adapter.bind(executable, out_avals, client.device(device_index))

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        """The results for `arrays`, which must have the shapes and dtypes that the program was made for, on its
        device.
        """
        return list(self.execute(list(arrays)).consume_with_handlers(self.handlers))

    def __repr__(self) -> str:
        return f"<Program {self.key[:12]} on tpu:{self.device_index}, results {self.out_avals}>"


_Slot = tuple[str, int]


class _Absent(Exception):
    """A program that is neither in memory nor on disk, where nothing may be compiled."""


class ProgramCache:
    """Programs in memory over an optional `DiskCache`. Safe from any number of threads."""

    def __init__(self, open_disk: Callable[[], DiskCache | None], counted: Counters) -> None:
        self._open_disk, self._counted = open_disk, counted
        self._disk: DiskCache | None = None
        self._opened = self._read_only = False
        self._lock = threading.RLock()
        self._programs: dict[_Slot, Program] = {}
        self._used: dict[_Slot, None] = {}
        self._making: dict[_Slot, Future[Program]] = {}
        self._shared: dict[int, keys.Components] = {}
        self._known: dict[str, list[keys.Components]] = {}
        self._misses: collections.deque[dict[str, Any]] = collections.deque(maxlen=_EXPLAINED)
        self._bad: dict[str, str] = {}
        self._warned: set[str] = set()
        self._compiled: set[str] = set()
        self._reset_totals()

    def _reset_totals(self) -> None:
        self._totals = {
            "memory_hits": 0,
            "disk_hits": 0,
            "misses": 0,
            "compiles": 0,
            "signature_hits": 0,
            "signature_misses": 0,
        }
        self._seconds = {"compile_seconds": 0.0, "load_seconds": 0.0}

    @property
    def used(self) -> list[_Slot]:
        """The programs that this process asked for, in the order of their first use."""
        with self._lock:
            return list(self._used)

    def warm_up(self) -> None:
        """Read the index and what the keys are made of, so that the first lookup does not have to."""
        self.lookup_signature(b"", 0, counted=False)

    def preload(self, key: str, device_index: int) -> None:
        """Have a program in memory before it is asked for; nothing when the disk does not have it."""
        if device_index < client.device_count():
            self._once_or_none((key, device_index), ahead=True)

    # The three calls of the core

    def get_or_compile(
        self, stablehlo: str | bytes, out_avals: Sequence[Aval], device_index: int, options: dict[str, Any]
    ) -> Program:
        """See the function of this name."""
        components = keys.program(stablehlo, options, self._environment(device_index))
        key = keys.address(components)
        return self._once(
            (key, device_index),
            lambda: (
                self._from_disk(key, device_index)
                or self._compile(key, components, stablehlo, out_avals, device_index, options)
            ),
        )

    def lookup_signature(self, key: bytes, device_index: int, counted: bool = True) -> tuple[Program, bytes] | None:
        """See the function of this name."""
        found = self._recorded(key, device_index)
        program = None
        if found is not None:
            program = self._once_or_none((found[0], device_index))
        with self._lock:
            if counted:
                self._totals["signature_misses" if program is None else "signature_hits"] += 1
        return (program, found[1]) if found is not None and program is not None else None

    def _recorded(self, key: bytes, device_index: int) -> tuple[str, bytes] | None:
        """The content address and the metadata that the disk has for a caller's key."""
        disk = self.disk()
        return disk.signature(keys.signature(key, self._environment(device_index))) if disk is not None else None

    def find_signature(self, key: bytes, device_index: int) -> bytes | None:
        """See the function of this name."""
        found = self._recorded(key, device_index)
        with self._lock:
            self._totals["signature_misses" if found is None else "signature_hits"] += 1
        return found[1] if found is not None else None

    def record_signature(self, key: bytes, program: Program, metadata: bytes) -> None:
        """See the function of this name."""
        disk = self.disk()
        if disk is not None and not self._read_only:
            signature = keys.signature(key, self._environment(program.device_index))
            self._write(lambda: disk.add_signature(signature, program.key, metadata))

    # Each program is made by one thread; the others wait for it

    def _once(self, slot: _Slot, make: Callable[[], Program], ahead: bool = False) -> Program:
        with self._lock:
            if not ahead:
                self._used.setdefault(slot)
            program = self._programs.get(slot)
            if program is not None:
                if not ahead:
                    self._count("memory_hits")
                return program
            future = self._making.get(slot)
            mine = future is None
            if future is None:
                future = self._making[slot] = Future()
        if not mine:
            try:
                program = future.result()
            except _Absent:
                return self._once(slot, make, ahead)  # that thread only looked; this one may compile
            with self._lock:
                self._count("memory_hits")
            return program
        try:
            program = self._from_other_device(slot) or make()
        except BaseException as error:
            with self._lock:
                del self._making[slot]
            future.set_exception(error)
            raise
        with self._lock:
            self._programs[slot] = program
            del self._making[slot]
            if not ahead and slot[0] not in self._compiled:
                self._counted.cache_hits += 1
        future.set_result(program)
        return program

    def _once_or_none(self, slot: _Slot, ahead: bool = False) -> Program | None:
        def make() -> Program:
            program = self._from_disk(*slot)
            if program is None:
                raise _Absent
            return program

        try:
            return self._once(slot, make, ahead)
        except _Absent:
            return None

    def _count(self, what: str) -> None:
        self._totals[what] += 1
        if what != "misses":
            self._counted.cache_hits += 1

    def _from_other_device(self, slot: _Slot) -> Program | None:
        """The program was made for another device of this process: its code serves here too."""
        from torus.runtime import jaxlib_adapter as adapter

        key, device_index = slot
        with self._lock:
            # XLA:CPU loses the code of a program that it has loaded when it serializes it again; the disk has that one.
            known = key in self._compiled
            other = next((p for (k, _), p in self._programs.items() if k == key), None) if known else None
        if other is None:
            return None
        try:
            executable = adapter.deserialize(adapter.serialize(other.executable), client.device(device_index))
        except Exception:
            return None  # a runtime that cannot serialize compiles again
        with self._lock:
            self._count("memory_hits")
        return Program(key, executable, other.out_avals, device_index)

    def _from_disk(self, key: str, device_index: int) -> Program | None:
        from torus.runtime import jaxlib_adapter as adapter

        disk = self.disk()
        if disk is None:
            return None
        started = time.perf_counter()
        try:
            entry = disk.load(key)
            if entry is None:
                return None
            out_avals = [(tuple(shape), name) for shape, name in entry.header["out_avals"]]
            if entry.header["kernels"]:
                adapter.register_kernels(client.device(device_index))
            program = Program(
                key, adapter.deserialize(entry.payload, client.device(device_index)), out_avals, device_index
            )
        except BadEntry as error:
            self._report_bad(key, str(error))
            return None
        except Exception as error:
            disk.discard(key)
            self._report_bad(key, f"this runtime does not load it: {error}")
            return None
        with self._lock:
            self._totals["disk_hits"] += 1
            self._seconds["load_seconds"] += time.perf_counter() - started
            self._known.setdefault(entry.header["components"]["program"], []).append(entry.header["components"])
        return program

    def _compile(
        self,
        key: str,
        components: keys.Components,
        stablehlo: str | bytes,
        out_avals: Sequence[Aval],
        device_index: int,
        options: dict[str, Any],
    ) -> Program:
        from torus.runtime import jaxlib_adapter as adapter

        why = self._explain_miss(key, components)
        started = time.perf_counter()
        program = Program(
            key, adapter.compile(stablehlo, client.device(device_index), options), out_avals, device_index
        )
        seconds = time.perf_counter() - started
        with self._lock:
            self._count("misses")
            self._totals["compiles"] += 1
            self._compiled.add(key)
            self._seconds["compile_seconds"] += seconds
            self._counted.compiles += 1
            self._misses.append(why | {"compile_seconds": round(seconds, 6)})
            self._known.setdefault(components["program"], []).append(components)
        self._save(program, components, seconds, adapter.needs_kernels(stablehlo))
        return program

    def _save(self, program: Program, components: keys.Components, seconds: float, kernels: bool) -> None:
        from torus.runtime import jaxlib_adapter as adapter

        disk = self.disk()
        if disk is None or self._read_only:
            return
        try:
            payload = adapter.serialize(program.executable)
        except Exception as error:
            self._warn("serialize", f"compiled programs of this platform cannot be kept on disk: {error}")
            return
        header = {"components": components, "out_avals": program.out_avals, "kernels": kernels}
        header["compile_seconds"] = round(seconds, 6)
        self._write(lambda: disk.store(program.key, header, payload))

    # Disk, and what can go wrong with it

    def disk(self) -> DiskCache | None:
        """The disk cache, opened at first use; None where it is disabled or unusable (which is reported once)."""
        if not self._opened:
            with self._lock:
                if not self._opened:
                    try:
                        self._disk = self._open_disk()
                    except Unusable as error:
                        self._warn(
                            "unusable",
                            f"the program cache on disk is not used, programs are kept in memory only: {error}",
                        )
                    self._opened = True
        return self._disk

    def _write(self, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            self._read_only = True
            path = self._disk.path if self._disk is not None else None
            self._warn(
                "write", f"the program cache at {path} cannot be written, new programs are kept in memory only: {error}"
            )

    def _report_bad(self, key: str, reason: str) -> None:
        with self._lock:
            self._bad[key] = reason
        self._warn(key, f"entry {key[:12]} of the program cache is not used, its program is compiled again: {reason}")

    def _warn(self, what: str, message: str) -> None:
        with self._lock:
            if what in self._warned:
                return
            self._warned.add(what)
        warnings.warn(message, CacheWarning, stacklevel=3)

    # Reports

    def _environment(self, device_index: int) -> keys.Components:
        shared = self._shared.get(device_index)
        if shared is None:
            shared = self._shared[device_index] = keys.environment(client.device(device_index))
        return shared

    def _explain_miss(self, key: str, components: keys.Components) -> dict[str, Any]:
        """Why this program has to be compiled: a bad entry, or what changed against the nearest known program with its
        text.
        """
        record: dict[str, Any] = {"program": key, "why": "new program", "nearest": None, "changed": {}}
        with self._lock:
            bad = self._bad.pop(key, None)
            known = list(self._known.get(components["program"], ()))
        if bad is not None:
            return record | {"why": f"bad entry: {bad}", "nearest": key}
        if self._disk is not None:
            known += self._disk.made_from(components["program"])
        if not known:
            return record
        nearest = min(known, key=lambda other: len(keys.differences(other, components)))
        names = keys.differences(nearest, components)
        why = ", ".join(names) + " changed" if names else "evicted or removed"
        changed = {name: (nearest.get(name), components.get(name)) for name in names}
        return record | {"why": why, "nearest": keys.address(nearest), "changed": changed}

    def explain(self) -> list[dict[str, Any]]:
        """One record for each program that was compiled, oldest first."""
        with self._lock:
            return [dict(record) for record in self._misses]

    def stats(self) -> dict[str, Any]:
        """Totals of this process, and what is in memory and on disk."""
        disk = self.disk()
        entries, size = disk.usage() if disk is not None else (0, 0)
        with self._lock:
            return {
                **self._totals,
                **self._seconds,
                "in_memory": len(self._programs),
                "entries": entries,
                "bytes": size,
                "limit": disk.limit if disk is not None else 0,
                "path": str(disk.path) if disk is not None else None,
                "writable": disk is not None and not self._read_only,
                "damaged_records": disk.index.damaged if disk is not None else 0,
            }

    def clear(self, disk: bool = True) -> None:
        """Forget all programs in memory, and on disk; callers keep those that they hold. Totals start again."""
        with self._lock:
            self._programs.clear()
            self._compiled.clear()
            self._known.clear()
            self._misses.clear()
            self._bad.clear()
            self._reset_totals()
        store = self.disk()
        if disk and store is not None:
            self._write(store.clear)


def _configured_disk() -> DiskCache | None:
    path: Path | None = settings.program_cache_path()
    return DiskCache(path, settings.get("cache_size")) if path is not None else None


cache = ProgramCache(_configured_disk, counters)
"""The cache of this process."""


def get_or_compile(
    stablehlo: str | bytes,
    out_avals: Sequence[Aval],
    device_index: int = 0,
    compiler_options: dict[str, Any] | None = None,
) -> Program:
    """The program for a StableHLO module on a device: from memory, else from disk, else compiled (and saved).

    `out_avals` are the ``(shape, dtype name)`` of its results. `compiler_options` are XLA debug options by name, for
    this program only; they are part of its key. Raises the compiler's error for a program that does not compile.
    """
    return cache.get_or_compile(stablehlo, out_avals, device_index, compiler_options or {})


def lookup_signature(key: bytes, device_index: int = 0) -> tuple[Program, bytes] | None:
    """The program and the metadata recorded for `key` by this process or an earlier one with the same versions, flags
    and hardware.
    """
    return cache.lookup_signature(key, device_index)


def find_signature(key: bytes, device_index: int = 0) -> bytes | None:
    """The metadata recorded for `key`, as `lookup_signature` gives it, without loading its program."""
    return cache.find_signature(key, device_index)


def record_signature(key: bytes, program: Program, metadata: bytes) -> None:
    """Remember on disk that `key` means `program`. `key` must hold all that the caller's choice of program depends on.

    That includes the compiler options and a fingerprint of the code that made the program.
    """
    cache.record_signature(key, program, metadata)
