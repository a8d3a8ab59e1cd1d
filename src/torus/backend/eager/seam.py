"""The functions that the native core calls by name. Nothing here runs on the warm path except transfers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from torus import _C, runtime, settings
from torus.backend import lowering, rules
from torus.backend.device import limit, numerics
from torus.backend.device.events import elapsed_time, query_event, record_event, synchronize_event
from torus.backend.device.memory import mem_get_info
from torus.backend.eager import fuse as fusion
from torus.backend.eager.build import Builder
from torus.backend.eager.checks import raise_failed_checks
from torus.backend.eager.fuse import fuse, report_fused_failure, report_storm
from torus.backend.eager.recipe import Recipe, cost_of
from torus.backend.eager.report import flushed
from torus.backend.eager.request import Request
from torus.backend.lowering.registry import RULES
from torus.runtime import host_memory, is_ready, prefetch, target

GRAPH = "graph:"
"""How the names of compiled graphs begin."""

__all__ = [
    "build",
    "copy_to_device",
    "elapsed_time",
    "extra_bytes",
    "flushed",
    "from_dlpack",
    "fuse",
    "is_ready",
    "load",
    "lookup",
    "memory_info",
    "pack_uploader",
    "query_event",
    "raise_failed_checks",
    "record_event",
    "refuse_memory",
    "report_fused_failure",
    "report_storm",
    "resize_bytes",
    "synchronize",
    "synchronize_event",
    "to_dlpack",
]


copy_to_device = runtime.copy_to_device


def from_dlpack(capsule: Any, device: int) -> Any:
    """The array with the values of a contiguous CPU tensor; without a copy on the host platform."""
    if runtime.platform_name() == "cpu":
        return runtime.from_dlpack(capsule, device)
    return runtime.from_numpy(host_memory.view_capsule(capsule), device, copy=False)


def to_dlpack(array: Any) -> Any:
    """The values of an array as CPU memory, waited for; elsewhere than on the host platform as a copy, in bytes."""
    runtime.block_until_ready([array])
    if runtime.platform_name() == "cpu":
        return runtime.to_dlpack(array)
    copied = np.array(runtime.to_numpy(array)).reshape(-1).view(np.uint8)
    return torch.from_numpy(copied).__dlpack__()


@cache
def _fingerprint() -> str:
    """What beside the signature decides a program: our own code, the core's too, and PyTorch's version."""
    root = Path(lowering.__file__).parent
    core = hashlib.sha256(Path(_C.__file__).read_bytes()).hexdigest()
    directories = (root, root.parent / "eager", root.parent / "compile")
    sources = [runtime.source_fingerprint(directory) for directory in directories]
    return " ".join([torch.__version__, core, *sources])


prefetch.also.append(_fingerprint)


def _disk_key(signature: bytes) -> bytes:
    return (
        f"{_fingerprint()} {rules.fingerprint()} {_checks_bounds()} {numerics.compiler_options()} ".encode() + signature
    )


def _checks_bounds() -> bool:
    return target.platform_name() == "cpu" or bool(settings.get("debug_checks"))


def pack_uploader(words: int, device: int) -> tuple[Any, tuple[Any, ...], int]:
    """A call, its arguments, and the address of `words` uint32 that it sends to the device when it is called."""
    return runtime.word_uploader(words, device)


building: list[Callable[[Request, list[Any] | None], None]] = []
"""Called with each op or graph that is built, and PyTorch's promises of its results."""


def lookup(signature: bytes, device: int, lazy: bool) -> tuple[Any, ...] | None:
    """What the core must know of a signature that an earlier process met, or None. `lazy`: without its program."""
    if building:
        return None  # who asks to be told of what is built wants to be told of everything
    key = _disk_key(signature)
    try:
        if lazy:
            metadata = runtime.programs.find_signature(key, device)
            return None if metadata is None else Recipe.found(key, device, metadata).answer()
        found = runtime.programs.lookup_signature(key, device)
        return None if found is None else Recipe.found(key, device, found[1], found[0]).answer()
    except ValueError:
        return None  # a record that is not ours: the signature is built, and recorded again


def build(signature: bytes, fields: tuple[Any, ...], promises: list[Any] | None, lazy: bool) -> tuple[Any, ...] | None:
    """Lower a signature, and compile it (`lazy`: in the background); None when its rule cannot express it (the core
    then runs the op on the CPU).
    """
    request = Request.from_core(fields)
    for tell in building:
        tell(request, promises)
    if request.rule.startswith(GRAPH):
        from torus.backend.compile.programs import build_graph

        return build_graph(_disk_key(signature), request, _checks_bounds())
    builder = Builder(request, RULES[request.rule], promises, target.platform_name(), _checks_bounds())
    try:
        text, out_avals = runtime.lower(builder.function, builder.avals, request.device)
    except NotImplementedError:
        return None
    except Exception as error:
        error.add_note(f"while lowering {request.describe()} for the tpu device")
        raise
    builder.plan.cost = cost_of(text)
    recipe = Recipe.lowered(_disk_key(signature), request.device, builder.plan, text, out_avals)
    if not lazy:
        recipe.program()
    elif _C.fuse_mode() == fusion.BACKGROUND:
        recipe.start(fusion.compiling)
    return recipe.answer()


def load(recipe: Recipe) -> tuple[Any, Any]:
    """The program of a recipe, as the core calls it."""
    program = recipe.program()
    return program.execute, program.handlers


def extra_bytes(recipe: Recipe) -> int:
    """The memory that a run of a program needs beside its arguments."""
    return recipe.program().extra_bytes(temporaries=True)


def resize_bytes(array: Any, nbytes: int, device: int) -> Any:
    """The bytes of a storage's array cut or zero-padded to `nbytes`."""
    old = runtime.to_numpy(array).reshape(-1).view(np.uint8)
    new = np.zeros(nbytes, np.uint8)
    kept = min(nbytes, old.size)
    new[:kept] = old[:kept]
    return runtime.from_numpy(new, device, copy=False)


def synchronize(device: int) -> None:
    """Wait for all work of a device."""
    runtime.synchronize(device)


def memory_info(device: int) -> tuple[int, int]:
    """Free and total bytes of a device's memory."""
    return mem_get_info(device)


def refuse_memory(device: int, nbytes: int, what: str) -> NoReturn:
    """Raise for bytes that a limit forbids."""
    limit.refuse(device, nbytes, what)
