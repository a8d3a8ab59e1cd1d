"""What can go wrong with a compile for a TPU that is not here."""

from __future__ import annotations

import re


class CompilerMissing(RuntimeError):
    """libtpu, the package with the TPU compiler, is not installed."""


class CompileError(RuntimeError):
    """The compiler refuses a program; the text is the compiler's."""


class CompileTimeout(CompileError):
    """The compiler took longer than it was given, and was stopped."""


class CompilerDied(CompileError):
    """The compiler's process ended in the middle of a program; the text is the last that it wrote."""


class DoesNotFit(CompileError):
    """A program needs more memory of a device than there is."""

    def __init__(self, text: str, needed: int, available: int) -> None:
        super().__init__(text)
        self.needed, self.available = needed, available


_MEMORY = re.compile(r"total memory required .*?\(([\d.]+)([KMGT]?)\) exceeds available HBM \(([\d.]+)([KMGT]?)\)")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def refusal(text: str) -> CompileError:
    """The error for what the compiler said."""
    match = _MEMORY.search(text)
    if match is None:
        return CompileError(text)
    needed, available = (int(float(match[i]) * _UNITS[match[i + 1]]) for i in (1, 3))
    return DoesNotFit(text, needed, available)
