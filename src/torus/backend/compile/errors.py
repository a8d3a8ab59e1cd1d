"""What goes wrong while a graph is compiled."""

from __future__ import annotations


class CompileError(RuntimeError):
    """A graph that cannot be compiled for the device. Its text names the op, its shapes and the user's line."""


class CompileWarning(RuntimeWarning):
    """Something about a compiled graph that the user may want to know; values are right all the same."""
