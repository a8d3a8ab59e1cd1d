"""Compiled programs: from memory, else from disk, else from a shared store, else compiled once, whichever thread asks
first.

`ProgramCache` is the mechanism; the functions below it act on the one of this process. Nothing here loads JAX until a
program is needed.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from torus import settings
from torus.runtime import client, forks, hlo_memory, keys, misses
from torus.runtime.cache_errors import CacheMiss, CacheWarning
from torus.runtime.counting import Counters, counters
from torus.runtime.disk_cache import DiskCache
from torus.runtime.entry import Entry
from torus.runtime.object_cache import ObjectCache
from torus.runtime.shared_tier import SharedTier, Warn
from torus.runtime.stores import open_store
from torus.runtime.target import target
from torus.runtime.tiers import OpenShared, Tiers

__all__ = [
    "Aval",
    "CacheMiss",
    "CacheWarning",
    "Program",
    "ProgramCache",
    "cache",
    "find_signature",
    "get_or_compile",
    "lookup_signature",
    "record_signature",
]

Aval = tuple[tuple[int, ...], str]


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

    def extra_bytes(self, temporaries: bool = False) -> int:
        """The memory that a run needs beside its arguments: results that take over none of theirs, and temporaries.

        `temporaries`: work them out where the runtime, as XLA:CPU, does not say how much they take.
        """
        from torus.runtime import jaxlib_adapter as adapter

        said = adapter.extra_bytes(self.executable)
        if temporaries and not adapter.memory_of(self.executable).get("temporaries"):
            return said + hlo_memory.temporary_bytes(adapter.optimized_hlo(self.executable))
        return said

    def __repr__(self) -> str:
        return f"<Program {self.key[:12]} on tpu:{self.device_index}, results {self.out_avals}>"


_Slot = tuple[str, int]


class _Absent(Exception):
    """A program that is neither in memory nor kept anywhere, where nothing may be compiled."""


class ProgramCache:
    """Programs in memory over an optional disk cache and an optional shared store. Safe from any number of threads.

    `cache_only` forbids compiling, `dump_misses` is the folder that what is compiled is written to; both are as the
    settings say until they are set.
    """

    def __init__(
        self,
        open_disk: Callable[[], DiskCache | None],
        counted: Counters,
        open_shared: OpenShared = lambda warn: None,
    ) -> None:
        self._counted = counted
        self.tiers = Tiers(open_disk, open_shared)
        self.disk = self.tiers.disk
        self.cache_only: bool | None = None
        self.dump_misses: Path | None = None
        self._programs: dict[_Slot, Program] = {}
        self._used: dict[_Slot, None] = {}
        self._shared: dict[int, keys.Components] = {}
        self._misses = misses.Misses()
        self._compiled: set[str] = set()
        self._reset_totals()
        forks.now_and_in_children(self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()
        self._making: dict[_Slot, Future[Program]] = {}

    def _reset_totals(self) -> None:
        self._totals = {
            "requests": 0,
            "memory_hits": 0,
            "disk_hits": 0,
            "shared_hits": 0,
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
        if (disk := self.disk()) is not None:
            disk.signature(keys.signature(b"", self._environment(0)))

    def preload(self, key: str, device_index: int) -> None:
        """Have a program in memory before it is asked for; nothing when the disk does not have it."""
        if device_index < client.device_count():
            self._once_or_none((key, device_index), ahead=True)

    # The three calls of the core

    def get_or_compile(
        self,
        stablehlo: str | bytes,
        out_avals: Sequence[Aval],
        device_index: int,
        options: dict[str, Any],
        keep: bool = True,
    ) -> Program:
        """See the function of this name."""
        components = keys.program(stablehlo, options, self._environment(device_index))
        key = keys.address(components)
        return self._once(
            (key, device_index),
            lambda: (
                self._kept(key, device_index)
                or self._compile(key, components, stablehlo, out_avals, device_index, options, keep)
            ),
        )

    def lookup_signature(self, key: bytes, device_index: int) -> tuple[Program, bytes] | None:
        """See the function of this name."""
        found = self._recorded(key, device_index)
        program = None
        if found is not None:
            program = self._once_or_none((found[0], device_index))
        with self._lock:
            self._totals["signature_misses" if program is None else "signature_hits"] += 1
        return (program, found[1]) if found is not None and program is not None else None

    def _recorded(self, key: bytes, device_index: int) -> tuple[str, bytes] | None:
        """The content address and the metadata that are kept for a caller's key."""
        return self.tiers.signature(keys.signature(key, self._environment(device_index)))

    def find_signature(self, key: bytes, device_index: int) -> bytes | None:
        """See the function of this name."""
        found = self._recorded(key, device_index)
        with self._lock:
            self._totals["signature_misses" if found is None else "signature_hits"] += 1
        return found[1] if found is not None else None

    def record_signature(self, key: bytes, program: Program, metadata: bytes) -> None:
        """See the function of this name."""
        signature = keys.signature(key, self._environment(program.device_index))
        self.tiers.add_signature(signature, program.key, metadata)

    # Each program is made by one thread; the others wait for it

    def _once(self, slot: _Slot, make: Callable[[], Program], ahead: bool = False) -> Program:
        with self._lock:
            if not ahead:
                self._used.setdefault(slot)
            program = self._programs.get(slot)
            if program is not None:
                if not ahead:
                    self._found_in_memory()
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
            if not ahead:
                with self._lock:
                    self._found_in_memory()
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
            if not ahead:
                self._totals["requests"] += 1
                self._counted.cache_hits += slot[0] not in self._compiled
        future.set_result(program)
        return program

    def _once_or_none(self, slot: _Slot, ahead: bool = False) -> Program | None:
        def make() -> Program:
            program = self._kept(*slot, nearby=ahead)
            if program is None:
                raise _Absent
            return program

        try:
            return self._once(slot, make, ahead)
        except _Absent:
            return None

    def _found_in_memory(self) -> None:
        self._totals["requests"] += 1
        self._totals["memory_hits"] += 1
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
            self._totals["memory_hits"] += 1
            self._counted.cache_hits += 1
        return Program(key, executable, other.out_avals, device_index)

    def _kept(self, key: str, device_index: int, nearby: bool = False) -> Program | None:
        """The program from the disk or, unless `nearby`, the shared store."""
        if target() is not None:
            return None  # what is kept does not run here
        started = time.perf_counter()
        found = self.tiers.load(key, lambda entry: _revive(key, entry, device_index), nearby)
        if found is None:
            return None
        program, entry, tier = found
        self._misses.know(entry.header["components"])
        with self._lock:
            self._totals[f"{tier}_hits"] += 1
            self._seconds["load_seconds"] += time.perf_counter() - started
        return program

    def _compile(
        self,
        key: str,
        components: keys.Components,
        stablehlo: str | bytes,
        out_avals: Sequence[Aval],
        device_index: int,
        options: dict[str, Any],
        keep: bool,
    ) -> Program:
        from torus.runtime import jaxlib_adapter as adapter

        record = self._missed(key, components, stablehlo, {"out_avals": list(out_avals), "options": options})
        started = time.perf_counter()
        program = Program(
            key,
            adapter.compile(stablehlo, client.device(device_index), options if target() is None else {}),
            out_avals,
            device_index,
        )
        seconds = time.perf_counter() - started
        with self._lock:
            self._totals["misses"] += 1
            self._totals["compiles"] += 1
            self._compiled.add(key)
            self._seconds["compile_seconds"] += seconds
            self._counted.compiles += 1
        self._misses.add(record | {"compile_seconds": round(seconds, 6)})
        self._misses.know(components)
        about = {"compile_seconds": round(seconds, 6), "summary": record["summary"], "created": record["time"]}
        kernels = adapter.needs_kernels(stablehlo)
        if keep:
            self._save(
                program,
                stablehlo,
                options,
                about | {"components": components, "out_avals": program.out_avals, "kernels": kernels},
            )
        return program

    def _save(self, program: Program, stablehlo: str | bytes, options: dict[str, Any], header: dict[str, Any]) -> None:
        if not self.tiers.keeps:
            return
        try:
            payload = self._payload(program, stablehlo, options)
        except Exception as error:
            which = "compiled programs of this platform" if target() is None else f"a program ({header['summary']})"
            about = "serialize" if target() is None else program.key
            self.tiers.warn(about, f"{which} cannot be kept on disk: {error}")
            return
        self.tiers.store(program.key, header, payload)

    def _payload(self, program: Program, stablehlo: str | bytes, options: dict[str, Any]) -> bytes:
        """The executable that is kept: another one than that which runs here, where programs have a target."""
        from torus.runtime import jaxlib_adapter as adapter

        made_for = target()
        return adapter.serialize(program.executable) if made_for is None else made_for.compile(stablehlo, options)

    # Misses

    def _missed(
        self, key: str, components: keys.Components, stablehlo: str | bytes, request: dict[str, Any]
    ) -> dict[str, Any]:
        """The record of a program that is nowhere. Raises CacheMiss where nothing may be compiled."""
        bad, kept = self.tiers.take_bad(key), self.tiers.made_from(components["program"])
        record = self._misses.explain(key, components, bad, kept) | {"summary": misses.summary(stablehlo)}
        self._dump(record, stablehlo, request)
        if not (settings.get("cache_only") if self.cache_only is None else self.cache_only):
            return record
        with self._lock:
            self._totals["requests"] += 1
            self._totals["misses"] += 1
        self._misses.add(record)
        raise CacheMiss(
            f"program {key[:12]} ({record['summary']}) is not in the cache and only cached programs may run "
            f"(TORUS_CACHE_ONLY, torch.tpu.cache.cache_only): {record['why']}"
        )

    def _dump(self, record: dict[str, Any], stablehlo: str | bytes, request: dict[str, Any]) -> None:
        directory = self.dump_misses or settings.get("dump_misses")
        if directory is None:
            return
        try:
            misses.dump(directory, record, stablehlo, request)
        except OSError as error:
            self.tiers.warn("dump", f"missed programs cannot be written to {directory}: {error}")

    # Reports

    def _environment(self, device_index: int) -> keys.Components:
        shared = self._shared.get(device_index)
        if shared is None:
            made_for = target()
            shared = keys.environment(client.device(device_index)) if made_for is None else made_for.components
            self._shared[device_index] = shared
        return shared

    def explain(self) -> list[dict[str, Any]]:
        """One record for each program that was compiled or, where that is forbidden, missing; oldest first."""
        return self._misses.records()

    def stats(self) -> dict[str, Any]:
        """Totals of this process, and what is in memory, on disk and in the shared store."""
        kept = self.tiers.stats()
        with self._lock:
            return {**self._totals, **self._seconds, "in_memory": len(self._programs), **kept}

    def clear(self, disk: bool = True) -> None:
        """Forget all programs in memory, and on disk; callers keep those that they hold. Totals start again."""
        with self._lock:
            self._programs.clear()
            self._compiled.clear()
            self._misses.clear()
            self._reset_totals()
        self.tiers.clear(disk)


def _revive(key: str, entry: Entry, device_index: int) -> Program:
    """The program of an entry, loaded on a device. Raises what the runtime raises for bytes that it does not like."""
    from torus.runtime import jaxlib_adapter as adapter

    device = client.device(device_index)
    out_avals = [(tuple(shape), name) for shape, name in entry.header["out_avals"]]
    if entry.header["kernels"]:
        adapter.register_kernels(device)
    return Program(key, adapter.deserialize(entry.payload, device), out_avals, device_index)


def _configured_disk() -> DiskCache | None:
    path: Path | None = settings.program_cache_path()
    return DiskCache(path, settings.get("cache_size")) if path is not None else None


def _configured_shared(warn: Warn) -> SharedTier | None:
    where = settings.get("shared_cache")
    return SharedTier(where, _open_shared, settings.get("shared_cache_writes"), warn) if where else None


def _open_shared(where: str) -> ObjectCache:
    return ObjectCache(open_store(where))


cache = ProgramCache(_configured_disk, counters, _configured_shared)
"""The cache of this process."""


@atexit.register
def _report(process: int = os.getpid()) -> None:
    """Leave word of what this process compiled, for ``torus cache``."""
    found, wanted = cache.explain(), settings.get("cache_report")
    if process != os.getpid() or not (found or wanted):
        return
    report = {"pid": process, "command": sys.orig_argv[1:], "time": time.time(), "misses": found}
    if wanted:
        misses.write_report(wanted, report | {"stats": cache.stats()})
    if found and (disk := cache.disk()) is not None:
        misses.write_report(disk.path / misses.LAST, report)


def get_or_compile(
    stablehlo: str | bytes,
    out_avals: Sequence[Aval],
    device_index: int = 0,
    compiler_options: dict[str, Any] | None = None,
    keep: bool = True,
) -> Program:
    """The program for a StableHLO module on a device: from memory, disk or the shared store, else compiled (and saved).

    `out_avals` are the ``(shape, dtype name)`` of its results. `compiler_options` are XLA debug options by name, for
    this program only; they are part of its key. `keep`: save what is compiled. Raises the compiler's error for a
    program that does not compile, and CacheMiss where compiling is forbidden.
    """
    return cache.get_or_compile(stablehlo, out_avals, device_index, compiler_options or {}, keep)


def lookup_signature(key: bytes, device_index: int = 0) -> tuple[Program, bytes] | None:
    """The program and the metadata recorded for `key` by this process or an earlier one with the same versions, flags
    and hardware.
    """
    return cache.lookup_signature(key, device_index)


def find_signature(key: bytes, device_index: int = 0) -> bytes | None:
    """The metadata recorded for `key`, as `lookup_signature` gives it, without loading its program."""
    return cache.find_signature(key, device_index)


def record_signature(key: bytes, program: Program, metadata: bytes) -> None:
    """Remember, on disk and in the shared store, that `key` means `program`.

    `key` must hold all that the caller's choice of program depends on. That includes the compiler options and a
    fingerprint of the code that made the program.
    """
    cache.record_signature(key, program, metadata)
