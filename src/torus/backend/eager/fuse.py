"""Fused programs: found on disk, or compiled in the background while their ops run one by one."""

from __future__ import annotations

import hashlib
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from torus import _C, runtime
from torus.backend.device import limit
from torus.backend.eager import rehearsal
from torus.backend.eager.compose import Composed, NodeSpec, compose
from torus.backend.eager.recipe import convolution_options
from torus.backend.eager.worker import Worker
from torus.runtime import target
from torus.runtime.programs import Aval, Program

NEVER, BACKGROUND, FOREGROUND = range(3)
"""When fused programs are compiled; the numbers are the core's."""

_VERSION = "fused 3"
_LOADED_AT_ONCE = 64
"""Programs of more ops than this take so long to load and to run first that their ops are faster one by one."""


class FusionWarning(RuntimeWarning):
    """Something about fusing that the user may want to know; values are right all the same."""


@dataclass(frozen=True)
class Segment:
    """Ops to be one program. Numbers are those of `compose`."""

    nodes: tuple[NodeSpec, ...]
    outputs: tuple[int, ...]
    donated: tuple[int, ...]
    words: int
    device: int

    @classmethod
    def from_core(cls, description: tuple[Any, ...]) -> Segment:
        """Name the fields of the tuple that the core sends."""
        nodes, outputs, donated, words, device = description
        return cls(tuple(NodeSpec(*node) for node in nodes), tuple(outputs), tuple(donated), words, device)

    def key(self) -> bytes:
        """The same bytes for the same segment in every process."""
        digest = hashlib.sha256(f"{_VERSION} {_options('')}".encode())
        for node in self.nodes:
            digest.update(node.recipe.digest)
            digest.update(repr((tuple(node.inputs), node.first_word, node.words)).encode())
        digest.update(repr((self.outputs, self.donated, self.words)).encode())
        return digest.digest()

    def compose(self) -> Composed:
        return compose(self.nodes, self.outputs, self.words, self.donated)


def fuse(number: int, description: tuple[Any, ...], wish: str) -> None:
    """Get the program of segment `number`: "find" it on disk, "compile" it in the background, or "wait" for it."""
    segment = Segment.from_core(description)
    large = wish != "wait" and len(segment.nodes) > _LOADED_AT_ONCE
    if large and runtime.programs.find_signature(segment.key(), segment.device) is not None:
        _C.fused_put_off(number)
        _worker.submit(lambda: _make(number, segment))
    elif not large and (found := _load(segment)) is not None:
        _announce(number, *found)
    elif wish == "wait":
        _make(number, segment)
    elif wish == "compile":
        _worker.submit(lambda: _make(number, segment))


def _make(number: int, segment: Segment) -> None:
    """Load or compile, and tell the core. A failure is said once; the ops go on one by one."""
    try:
        _announce(number, *(_load(segment) or _compile(segment)))
    except Exception as error:
        _C.fused_failed(number)
        report_fused_failure(str(error))


def _load(segment: Segment) -> tuple[Program, bytes] | None:
    return runtime.programs.lookup_signature(segment.key(), segment.device)


def _compile(segment: Segment) -> tuple[Program, bytes]:
    composed = segment.compose()
    program = runtime.programs.get_or_compile(
        composed.text, [_aval(kind) for kind in composed.result_types], segment.device, _options(composed.text)
    )
    about = rehearsal.describe(composed.text, [_aval(kind) for kind in composed.argument_types])
    runtime.programs.record_signature(segment.key(), program, about)
    return program, about


def _announce(number: int, program: Program, about: bytes) -> None:
    extra_bytes = program.extra_bytes(temporaries=limit.is_set())
    if _worker.is_this_thread():
        rehearsal.run(program, about, extra_bytes)
    _C.fused_ready(number, program.execute, program.handlers, extra_bytes)


def _options(text: str) -> dict[str, Any]:
    """A fused program rounds where its ops would, whatever `allow_excess_precision` says, so that the modes agree."""
    return {"xla_allow_excess_precision": False} | convolution_options(target.platform_name(), text)


_DTYPES = {"i1": "bool", "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64"}
_DTYPES |= {f"i{bits}": f"int{bits}" for bits in (4, 8, 16, 32, 64)}
_DTYPES |= {f"ui{bits}": f"uint{bits}" for bits in (4, 8, 16, 32, 64)}
_DTYPES |= {"complex<f32>": "complex64", "complex<f64>": "complex128"}
_DTYPES |= {f"f8{kind}": f"float8_{name}" for kind, name in (("E4M3FN", "e4m3fn"), ("E5M2", "e5m2"))}
_DTYPES |= {f"f8{kind}": f"float8_{name}" for kind, name in (("E4M3FNUZ", "e4m3fnuz"), ("E5M2FNUZ", "e5m2fnuz"))}
_DTYPES |= {"f8E8M0FNU": "float8_e8m0fnu"}


def _aval(kind: str) -> Aval:
    """``tensor<4x2xf32>`` as a shape and the name of a dtype."""
    *sizes, dtype = (
        kind.removeprefix("tensor<").removesuffix(">").split("x") if "complex" not in kind else _complex(kind)
    )
    return tuple(int(size) for size in sizes), _DTYPES[dtype]


def _complex(kind: str) -> list[str]:
    sizes, _, dtype = kind.removeprefix("tensor<").removesuffix(">").rpartition("complex")
    return [*(size for size in sizes.split("x") if size), "complex" + dtype]


def report_fused_failure(text: str) -> None:
    """Say that a fused program could not be used."""
    warnings.warn(
        f"a fused program could not be made or run, so its ops run one by one: {text}", FusionWarning, stacklevel=2
    )


def report_storm(difference: str) -> None:
    """Say that traces keep changing, so that fusing would only compile."""
    warnings.warn(
        f"recorded operators are run one by one for a while, because each recording is a new one: {difference}. "
        "torch.tpu.explain() shows them.",
        FusionWarning,
        stacklevel=2,
    )


_worker = Worker()
wait_for_compiles = _worker.wait
compiling = ThreadPoolExecutor(max(1, min(4, os.cpu_count() or 1)), thread_name_prefix="torus-compile")
"""Compiles the programs of single ops while more ops are recorded."""
