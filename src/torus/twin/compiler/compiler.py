"""StableHLO compiled for a TPU that is not here, once: results are kept on disk by what they were made from."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torus import settings
from torus.runtime import keys
from torus.runtime.cache_errors import BadEntry, Unusable
from torus.runtime.disk_cache import DiskCache
from torus.twin.compiler import errors
from torus.twin.compiler.compiled import Compiled, unpacked
from torus.twin.compiler.service import Service, check_installed, service
from torus.twin.topology import Topology

QUICK = {"xla_optimization_level": "EFFORT_O0"}
"""Options that compile in less time, to a program that is somewhat worse."""

_FORMAT = "1"
_REFUSED = "refused"


class Compiler:
    """The TPU compiler for one topology. A program says by its ``mhlo.num_partitions`` for how many of the devices it
    is, and Shardy partitions it. Compilers of one process share one process of libtpu, and take turns.

    cache: the folder of results; None for ``twin`` in torus's cache directory.
    """

    def __init__(self, topology: Topology, cache: Path | None = None, service: Service = service) -> None:
        self.topology = topology
        self._service = service
        self._folder = cache
        self._disk: DiskCache | None = None

    def compile(
        self,
        stablehlo: str | bytes,
        *,
        options: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        executable: bool = True,
    ) -> Compiled:
        """What becomes of a module, from the cache where it is known.

        options: the compiler's own, by name; see `QUICK`. timeout: seconds; None waits for ever. executable: whether
        `Compiled.serialized` is wanted, which takes some hundred kilobytes in the cache.

        Raises CompilerMissing without libtpu, CompileTimeout, and CompileError with the compiler's words: DoesNotFit
        for a program that needs more memory than there is. Ctrl-C ends the compile.
        """
        options = dict(options or {})
        components = self.components(stablehlo, options)
        found = self._load(components, executable)
        if found is None:
            answer = self._service.ask(self.topology.name, stablehlo, options, timeout)
            if _REFUSED in answer:
                self._store(components, {_REFUSED: answer[_REFUSED]}, b"")
                raise errors.refusal(answer[_REFUSED])
            found = Compiled(**answer | ({} if executable else {"serialized": b""}))
            self._store(components, *found.packed())
        return found

    def environment(self) -> keys.Components:
        """What the keys of a process on this topology share, as `torus.runtime.keys.environment` gives it there."""
        answer = self._service.ask(self.topology.name, None, {}, None)
        if _REFUSED in answer:
            raise errors.refusal(answer[_REFUSED])
        components: keys.Components = answer["environment"]
        return components

    def is_known(self, stablehlo: str | bytes, *, options: Mapping[str, Any] | None = None) -> bool:
        """Whether `compile` would answer from the cache."""
        try:
            return self._load(self.components(stablehlo, dict(options or {})), executable=False) is not None
        except errors.CompileError:
            return True

    def components(self, stablehlo: str | bytes, options: dict[str, Any]) -> keys.Components:
        """What a result depends on. Raises CompilerMissing."""
        return keys.program(stablehlo, options, _versions() | {"topology": self.topology.name})

    def _load(self, components: keys.Components, executable: bool) -> Compiled | None:
        """The result that is kept. Raises CompileError for one that was a refusal."""
        entry = None
        with contextlib.suppress(BadEntry, OSError):
            entry = disk.load(keys.address(components)) if (disk := self._open()) is not None else None
        if entry is None:
            return None
        if _REFUSED in entry.header:
            raise errors.refusal(entry.header[_REFUSED])
        found = unpacked(entry)
        return found if found.serialized or not executable else None

    def _store(self, components: keys.Components, header: dict[str, Any], payload: bytes) -> None:
        with contextlib.suppress(OSError):  # a result that cannot be kept is still one
            if (disk := self._open()) is not None:
                disk.store(keys.address(components), header | {"components": components}, payload)

    def _open(self) -> DiskCache | None:
        if self._disk is None:
            folder = self._folder or Path(settings.get("cache_dir")) / "twin"
            with contextlib.suppress(Unusable):
                self._disk = DiskCache(folder, settings.get("cache_size"))
        return self._disk


def _versions() -> keys.Components:
    from torus.runtime import jaxlib_adapter as adapter

    check_installed()
    names = ("libtpu", "jaxlib")
    return adapter.environment() | {name: importlib.metadata.version(name) for name in names} | {"format": _FORMAT}
