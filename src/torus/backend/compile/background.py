"""Compiling in the background while a graph runs op by op."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from torus.backend.eager.fuse import compiling


class Background:
    """A program that is made on another thread; `prepare` makes it for a list of arguments."""

    def __init__(self, prepare: Callable[[list[Any]], None]) -> None:
        self._prepare = prepare
        self._future: Future[None] | None = None

    def ready(self, arguments: list[Any]) -> bool:
        """Whether the program is there; the first call starts it. Raises CompileError when it could not be made."""
        if self._future is None:
            self._future = compiling.submit(self._prepare, arguments)
        if not self._future.done():
            return False
        self._future.result()
        return True
