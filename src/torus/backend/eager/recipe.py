"""What Python knows of one signature: its StableHLO text, the plan of its results, and how to get at its program."""

from __future__ import annotations

import contextlib
import hashlib
import re
import zlib
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from torus import runtime
from torus.backend.device import numerics
from torus.backend.eager import written
from torus.backend.eager.build import Plan
from torus.runtime import target
from torus.runtime.programs import Aval, Program

# Numbers, their unpacking, and what only says how elements lie.
_FREE = re.compile(r"tensor<(?:[a-z]+\d+|\d+xui32)>$|stablehlo\.(?:reshape|constant|broadcast_in_dim)\b")
_RANDOM = 30
"""The compiler expands a random generator into so many instructions (measured by time)."""


class Recipe:
    """One signature on one device. `key` names it in every process."""

    __slots__ = ("_program", "_text", "device", "key", "out_avals", "plan")

    def __init__(
        self, key: bytes, device: int, plan: Plan, text: bytes, out_avals: Sequence[Aval], program: Any = None
    ) -> None:
        self.key, self.device, self.plan, self.out_avals = key, device, plan, list(out_avals)
        self._text = text
        self._program: Program | Future[Program] | None = program

    @classmethod
    def lowered(cls, key: bytes, device: int, plan: Plan, text: str, out_avals: Sequence[Aval]) -> Recipe:
        """A recipe that was just made; its program does not exist yet."""
        return cls(key, device, plan, zlib.compress(text.encode(), 1), out_avals)

    @classmethod
    def found(cls, key: bytes, device: int, metadata: bytes, program: Program | None = None) -> Recipe:
        """A recipe that was written down with `metadata`."""
        plan, text, out_avals = written.decode(metadata)
        return cls(key, device, plan, text, out_avals, program)

    @property
    def text(self) -> str:
        """The StableHLO module of the op."""
        return zlib.decompress(self._text).decode()

    @property
    def digest(self) -> bytes:
        """32 bytes that stand for the signature."""
        return hashlib.sha256(self.key).digest()

    def start(self, compiling: Any) -> None:
        """Have the program made on the executor `compiling`; later, if the process is ending."""
        with contextlib.suppress(RuntimeError):
            self._program = compiling.submit(self._make)

    def program(self, keep: bool = True) -> Program:
        """The program, waited for or made now (`keep`: and saved). Raises what the compiler raises."""
        if isinstance(self._program, Future):
            self._program = self._program.result()
        if self._program is None:
            self._program = self._make(keep)
        return self._program

    def _make(self, keep: bool = True) -> Program:
        text = self.text
        options = self.plan.options
        if options is None:
            options = compiler_options(target.platform_name(), text)
        program = runtime.programs.get_or_compile(text, self.out_avals, self.device, options, keep)
        if keep:
            metadata = written.encode(self.plan, self._text, self.out_avals)
            runtime.programs.record_signature(self.key, program, metadata)
        return program

    def answer(self) -> tuple[Any, ...]:
        """What the core keeps of this signature."""
        plan = self.plan
        results, checks = plan.results, plan.checks or None
        return (self, plan.inputs, plan.takes_pack, results, plan.counts, checks, plan.cost, plan.donated)


def compiler_options(platform: str, text: str) -> dict[str, Any]:
    """Options for a program of one op.

    Measured: XLA:CPU's fusion emitters double the compile time of a program of one kernel and halve that of one with
    reductions, and its ynn library makes the gradient of a convolution five times slower than XLA's own code.
    """
    options = numerics.compiler_options()
    if platform == "cpu" and "stablehlo.reduce" not in text:
        options["xla_cpu_use_fusion_emitters"] = False
    return options | convolution_options(platform, text)


def convolution_options(platform: str, text: str) -> dict[str, Any]:
    """Options for a program, of one op or of several, that has convolutions; none for others."""
    on_host = platform == "cpu" and "stablehlo.convolution" in text
    return {"xla_cpu_experimental_ynn_fusion_type": ""} if on_host else {}


def cost_of(text: str) -> int:
    """How much a program adds to one that it is fused into: its instructions that compute, on more than one number."""
    lines = (line for line in text.splitlines() if "stablehlo." in line)
    return max(1, sum(_RANDOM if "rng_bit_generator" in line else 1 for line in lines if not _FREE.search(line)))
