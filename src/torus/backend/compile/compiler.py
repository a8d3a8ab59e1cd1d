"""`torch.tpu.compiler`: options of the XLA compiler, and what it made."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torus.backend.compile.errors import CompileError, CompileWarning
from torus.backend.compile.inspect import CompiledProgram

__all__ = ["CompileError", "CompileWarning", "CompiledProgram", "custom_compiler_options", "programs"]

_local = threading.local()


@contextmanager
def custom_compiler_options(options: dict[str, Any]) -> Iterator[None]:
    """Compile with these XLA options, by name, inside the block on this thread: ``{"xla_cpu_enable_fast_math": True}``.

    They count when `torch.compile` meets a function for the first time. An unknown name is a CompileError then.
    """
    previous = current_options()
    _local.options = previous | options
    try:
        yield
    finally:
        _local.options = previous


def current_options() -> dict[str, Any]:
    """The options of the innermost blocks."""
    return dict(getattr(_local, "options", {}))


def programs() -> list[CompiledProgram]:
    """What was compiled or loaded for compiled functions in this process, oldest first."""
    from torus.backend.compile.programs import made

    return list(made)
