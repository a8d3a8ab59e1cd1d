"""What a user can say to `torch.compile(..., backend="tpu", options=...)`."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from torus import settings

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@dataclass(frozen=True)
class Options:
    """Options of a compiled function.

    async_compile: compile in the background; until the program is there, the graph runs op by op.
    num_dynamic_buckets, bucket_size: for dynamic sizes: the most programs, and the step between their sizes (0: any).
    serializable: keep the program in the cache on disk.
    debug_callback: called with a `torch.tpu.compiler.CompiledProgram` after each compile.
    name: names the graph in messages and dumps.
    fallback: run a graph that cannot be compiled op by op, with one warning; False raises instead. None follows the
        setting TORUS_COMPILE_FALLBACK.
    compiler_options: XLA options by name, for these programs only.
    mode: `"reduce-overhead"` does not check indices on the host platform, as accelerators do not; `"max-autotune"`
        compiles each program in several ways and keeps the fastest.
    """

    async_compile: bool = False
    num_dynamic_buckets: int = 3
    bucket_size: int = 0
    serializable: bool = True
    debug_callback: Callable[[Any], None] | None = None
    name: str | None = None
    fallback: bool | None = None
    compiler_options: Mapping[str, Any] = field(default_factory=dict)
    mode: str = "default"

    @classmethod
    def parse(cls, mode: str | None, options: Mapping[str, Any] | None) -> Options:
        """Options from what `torch.compile` passes on. Raises ValueError, naming what exists, for an unknown one."""
        known = {f.name for f in fields(cls)} - {"mode"}
        given = dict(options or {})
        unknown = sorted(set(given) - known)
        if unknown:
            raise ValueError(f"the tpu backend has no option {', '.join(unknown)}; it has {', '.join(sorted(known))}")
        if mode is not None and mode not in MODES:
            raise ValueError(f"the tpu backend has no mode {mode!r}; it has {', '.join(MODES)}")
        result = cls(mode=mode or "default", **given)
        if result.num_dynamic_buckets < 1 or result.bucket_size < 0:
            raise ValueError("num_dynamic_buckets is a number from 1 on, bucket_size one from 0 on (0: chosen)")
        return result

    @property
    def falls_back(self) -> bool:
        """Whether a graph that cannot be compiled runs op by op."""
        return bool(settings.get("compile_fallback")) if self.fallback is None else self.fallback

    def xla_options(self) -> dict[str, Any]:
        """XLA's options for the programs."""
        from torus.backend.compile.compiler import current_options

        return dict(self.compiler_options) | current_options()

    @property
    def autotunes(self) -> bool:
        """Whether the fastest of several ways to compile is looked for."""
        return self.mode.startswith("max-autotune")

    @property
    def checks_indices(self) -> bool:
        """Whether out-of-range indices raise where the platform checks them."""
        return self.mode != "reduce-overhead"

    def key(self) -> str:
        """What of the options decides a program. Who wants to look at programs gets graphs of their own, so that none
        is found without its text.
        """
        looked_at = self.debug_callback is not None or settings.get("compile_dump") is not None
        own = uuid.uuid4().hex if looked_at else ""
        return json.dumps([self.xla_options(), self.mode, self.serializable, own], sort_keys=True, default=str)
