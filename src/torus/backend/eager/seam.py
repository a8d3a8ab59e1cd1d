"""The functions that the native core calls by name. Nothing here runs on the warm path except transfers."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torus import runtime, settings
from torus.backend import lowering
from torus.backend.device import numerics
from torus.backend.device.events import elapsed_time, query_event, record_event, synchronize_event
from torus.backend.eager.build import Builder, Plan
from torus.backend.eager.request import Request
from torus.backend.lowering.registry import RULES
from torus.runtime import host_memory, is_ready, prefetch

__all__ = [
    "build",
    "copy_to_device",
    "elapsed_time",
    "from_dlpack",
    "is_ready",
    "lookup",
    "memory_info",
    "pack_uploader",
    "query_event",
    "raise_failed_checks",
    "record_event",
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
    """What beside the signature decides a program: our own sources and PyTorch's version."""
    root = Path(lowering.__file__).parent
    return f"{torch.__version__} {runtime.source_fingerprint(root)} {runtime.source_fingerprint(root.parent / 'eager')}"


prefetch.also.append(_fingerprint)


def _disk_key(signature: bytes) -> bytes:
    return f"{_fingerprint()} {_checks_bounds()} {numerics.compiler_options()} ".encode() + signature


def _checks_bounds() -> bool:
    return runtime.platform_name() == "cpu" or bool(settings.get("debug_checks"))


def compiler_options(platform: str, text: str) -> dict[str, Any]:
    """Options for a program of one op.

    Measured: XLA:CPU's fusion emitters double the compile time of a program of one kernel and halve that of one with
    reductions, and its ynn library makes the gradient of a convolution five times slower than XLA's own code.
    """
    options = numerics.compiler_options()
    if platform == "cpu" and "stablehlo.reduce" not in text:
        options["xla_cpu_use_fusion_emitters"] = False
    if platform == "cpu" and "stablehlo.convolution" in text:
        options["xla_cpu_experimental_ynn_fusion_type"] = ""
    return options


def _answer(program: Any, plan: Plan) -> tuple[Any, ...]:
    checks = plan.checks or None
    return (program.execute, program.handlers, plan.inputs, plan.takes_pack, plan.results, plan.counts, checks)


def pack_uploader(words: int, device: int) -> tuple[Any, tuple[Any, ...], int]:
    """A call, its arguments, and the address of `words` uint32 that it sends to the device when it is called."""
    return runtime.word_uploader(words, device)


def lookup(signature: bytes, device: int) -> tuple[Any, ...] | None:
    """The program of a signature that an earlier process made, or None."""
    found = runtime.programs.lookup_signature(_disk_key(signature), device)
    if found is None:
        return None
    program, metadata = found
    return _answer(program, pickle.loads(metadata))


def build(signature: bytes, fields: tuple[Any, ...], promises: list[Any] | None) -> tuple[Any, ...] | None:
    """Lower and compile the program of a signature; None when its rule cannot express it (the core then runs the op on
    the CPU).
    """
    request = Request.from_core(fields)
    platform = runtime.platform_name()
    builder = Builder(request, RULES[request.rule], promises, platform, _checks_bounds())
    try:
        text, out_avals = runtime.lower(builder.function, builder.avals, request.device)
    except NotImplementedError:
        return None
    except Exception as error:
        error.add_note(f"while lowering {request.describe()} for the tpu device")
        raise
    program = runtime.programs.get_or_compile(text, out_avals, request.device, compiler_options(platform, text))
    runtime.programs.record_signature(_disk_key(signature), program, pickle.dumps(builder.plan))
    return _answer(program, builder.plan)


def raise_failed_checks(messages: list[str], reports: list[Any]) -> None:
    """Raise IndexError for the first index check that failed. Waits for the program."""
    for message, report in zip(messages, reports, strict=True):
        failed, value = runtime.to_numpy(report)
        if failed:
            raise IndexError(message.format(value=int(value)))


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
    return runtime.memory_info(device)
