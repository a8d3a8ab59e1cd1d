"""Programs and how they run: lines of Python, executed on the CPU and on the device, compared after each line."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType
from typing import Any

import torch

from tests.fuzz import modes
from tests.fuzz.compare import difference

DEVICE = "tpu"
_MASKED = re.compile(r"\[.* == .*\]$")
"""A read with a mask: the size of its result is a value."""


@dataclass(frozen=True)
class Mismatch:
    """Where the two sides first differ: the line, which aspect (``values``, ``stride`` ...) and what each side has."""

    line: int
    aspect: str
    detail: str


@dataclass
class Program:
    """Lines of Python over ``torch`` and ``device``, each of them one statement."""

    seed: int
    lines: list[str] = field(default_factory=list)

    def source(self) -> str:
        """The program as a script."""
        return "\n".join(
            ["import torch, torus", "", f'device = "{DEVICE}"  # the right values: device = "cpu"', *self.lines]
        )


@lru_cache(maxsize=20_000)
def _compiled(line: str) -> CodeType:
    return compile(line, "<fuzz>", "exec")


class Pair:
    """The state of one program on both sides. In a mode that records, values are compared at the end only."""

    def __init__(self, switch: modes.Switch, strict: bool) -> None:
        self.cpu: dict[str, Any] = {"torch": torch, "device": "cpu"}
        self.device: dict[str, Any] = {"torch": torch, "device": DEVICE}
        self.ended = self._sized = False
        self._switch, self._strict = switch, strict

    def step(self, line: str) -> tuple[str, str] | None:
        """Run one line on both sides; the aspect that differs and what each side has, or None."""
        code = _compiled(line)
        self._sized = self._sized or _MASKED.search(line) is not None
        expected = _run(code, self.cpu)
        if isinstance(expected, NotImplementedError):
            return None  # the CPU has no kernel for this dtype, and so no answer to compare with
        self._switch.before_statement()
        actual = _run(code, self.device)
        if actual is None and not self._strict and _is_out_of_range(expected):
            # What was recorded fails when it runs, and spoils what it wrote: there is nothing to compare any more.
            self.ended = True
            actual = _waited_for()
        if type(expected) is not type(actual) and not _both_out_of_range(expected, actual):
            return "exception", f"cpu: {expected!r}\ndevice: {actual!r}"
        return None if self.ended else difference(self.cpu, self.device, self._strict, self._sized)

    def finish(self) -> tuple[str, str] | None:
        """Compare the values at the end."""
        return None if self.ended else difference(self.cpu, self.device, sized=self._sized)


def _waited_for() -> Exception | None:
    try:
        torch.tpu.synchronize()
    except IndexError as error:
        return error
    return None


def _is_out_of_range(expected: Exception | None) -> bool:
    return isinstance(expected, (RuntimeError, IndexError)) and any(words in str(expected) for words in OUT_OF_RANGE)


OUT_OF_RANGE = ("out of", "axis dim should be positive")


def _both_out_of_range(expected: Exception | None, actual: Exception | None) -> bool:
    """A bad index is both here; ATen's CPU kernels raise RuntimeError for some operations, IndexError for others."""
    if not isinstance(expected, (RuntimeError, IndexError)) or not isinstance(actual, IndexError):
        return False
    return _is_out_of_range(expected)


def _run(code: CodeType, names: dict[str, Any]) -> Exception | None:
    try:
        exec(code, names)
    except Exception as error:
        error.__traceback__ = None  # it would keep tensors alive
        return error
    return None


def run(lines: Sequence[str], mode: str = "strict", seed: int = 0) -> Mismatch | None:
    """Run lines on both sides up to the first difference."""
    return run_while(lambda pair, number: lines[number] if number < len(lines) else None, mode, seed)


def run_while(next_line: Callable[[Pair, int], str | None], mode: str = "strict", seed: int = 0) -> Mismatch | None:
    """Run the lines that `next_line` gives for the state so far, until it gives None or the sides differ."""
    with warnings.catch_warnings(), modes.running(mode, seed) as switch:
        warnings.simplefilter("ignore")
        pair, number = Pair(switch, mode == "strict"), 0
        while not pair.ended and (line := next_line(pair, number)) is not None:
            found = pair.step(line)
            if found is not None:
                return Mismatch(number, *found)
            number += 1
        found = pair.finish()
        return None if found is None else Mismatch(number - 1, *found)


def minimize(lines: Sequence[str], mode: str = "strict", seed: int = 0) -> list[str]:
    """The fewest lines found, by leaving lines out, that still differ in the same aspect."""
    first = run(lines, mode, seed)
    if first is None:
        return list(lines)
    kept = list(lines[: first.line + 1])
    size = len(kept) // 2
    while size >= 1:
        position = 0
        while position < len(kept):
            shorter = kept[:position] + kept[position + size :]
            found = run(shorter, mode, seed)
            if found is not None and found.aspect == first.aspect:
                kept = shorter[: found.line + 1]
            else:
                position += size
        size //= 2
    return kept
