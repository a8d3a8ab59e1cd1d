"""`torch.tpu.compiler`: options of the XLA compiler, and what it made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torus.backend.compile.errors import CompileError, CompileWarning
from torus.backend.compile.inspect import CompiledProgram

if TYPE_CHECKING:
    import torch

__all__ = ["CompileError", "CompileWarning", "CompiledProgram", "custom_compiler_options", "programs", "train_step"]

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


def train_step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[..., Any],
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """One function that does a training step as one program: ``step(*batch)`` returns what `loss` returned, detached.

    `loss` is ``loss(model, *batch)`` and returns the scalar to minimize, or a tuple that begins with it. Parameters,
    buffers and the optimizer's state are updated in place and stay ordinary PyTorch objects, so that checkpoints,
    schedulers and evaluation work as ever; gradients are not kept in ``.grad``. A new learning rate compiles nothing;
    new sizes of the batch, and other settings of the optimizer, compile once. Where the optimizer makes state in its
    first step, as momentum does, that step runs op by op. `mode` and `options` are those of `torch.compile`.

    Raises ValueError for parameters that are not on the device or an optimizer that needs a closure.
    """
    from torus.backend.compile.train_step import TrainStep

    return TrainStep(model, optimizer, loss, mode, options)
