"""What a compiled graph became: its texts and what it costs."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torus import settings

log = logging.getLogger("torus.backend.compile")


@dataclass(frozen=True)
class CompiledProgram:
    """One program of a compiled graph, as a debug callback gets it.

    `name` is unique to the graph and its options, `fx` the graph of ATen ops as text, `stablehlo` the module that the
    compiler got, `compiled` whether it was compiled now (False: it came from the cache).
    """

    name: str
    fx: str
    stablehlo: str
    compiled: bool
    executable: Any

    @cached_property
    def hlo(self) -> str:
        """The optimized HLO; empty where the runtime does not say."""
        from torus.runtime import jaxlib_adapter

        return jaxlib_adapter.optimized_hlo(self.executable)

    @cached_property
    def memory(self) -> dict[str, int]:
        """Bytes of arguments, results, temporaries, and arguments that became results."""
        from torus.runtime import jaxlib_adapter

        return jaxlib_adapter.memory_of(self.executable)

    @cached_property
    def cost(self) -> dict[str, float]:
        """The compiler's estimates, by its own names: ``flops``, ``bytes accessed`` and others."""
        from torus.runtime import jaxlib_adapter

        return jaxlib_adapter.cost_of(self.executable)

    def dump(self, folder: str | Path) -> Path:
        """Write ``fx.txt``, ``stablehlo.mlir``, ``optimized.hlo`` and ``cost.txt`` to ``folder/name``."""
        target = Path(folder) / self.name.replace(":", "_")
        target.mkdir(parents=True, exist_ok=True)
        (target / "fx.txt").write_text(self.fx)
        (target / "stablehlo.mlir").write_text(self.stablehlo)
        (target / "optimized.hlo").write_text(self.hlo)
        lines = [f"{key}: {value}" for key, value in {**self.memory, **self.cost}.items()]
        (target / "cost.txt").write_text("\n".join(lines) + "\n")
        return target


def report(program: CompiledProgram, callback: Any) -> None:
    """Tell all who want to know: the callback, the log (``TORCH_LOGS="+torus.backend.compile"``), the dump folder."""
    log.info("%s: %s", program.name, "compiled" if program.compiled else "from the cache")
    if log.isEnabledFor(logging.DEBUG):
        log.debug("%s\n%s\n%s", program.name, program.fx, program.stablehlo)
    if folder := settings.get("compile_dump"):
        program.dump(folder)
    if callback is not None:
        callback(program)
