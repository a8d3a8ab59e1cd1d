"""Progress on stderr: a bar, or words. On a terminal it is redrawn in place, elsewhere each stage is a line."""

from __future__ import annotations

import sys
import time
from types import TracebackType

WIDTH = 24


class Stage:
    """One stage of the work, as a context manager; `advance` moves its bar.

    total: how often `advance` will be called; 1 for a stage that cannot tell how far it is.
    """

    def __init__(self, name: str, total: int = 1) -> None:
        self.name, self.total, self.done = name, total, 0
        self.start = time.perf_counter()

    def __enter__(self) -> Stage:
        self._draw(end="\r")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.done = self.total
            self._draw(end="\n")
        else:
            print(file=sys.stderr)

    def advance(self) -> None:
        """One more part of the stage is done."""
        self.done = min(self.done + 1, self.total)
        self._draw(end="\r")

    def update(self, done: int, total: int) -> None:
        """So many of so many parts are done: what `progress` of `torus.explain.explain` is."""
        self.done, self.total = min(done, max(total, 1)), max(total, 1)
        self._draw(end="\r")

    def _draw(self, end: str) -> None:
        if end == "\r" and not sys.stderr.isatty():
            return
        filled = WIDTH * self.done // self.total
        seconds = time.perf_counter() - self.start
        bar = "█" * filled + "·" * (WIDTH - filled)
        print(
            f"  {bar} {100 * self.done // self.total:3d} %  {self.name}, {seconds:.1f} s",
            end=end,
            file=sys.stderr,
            flush=True,
        )


class Status:
    """What goes on, on stderr: one line that is replaced on a terminal, a line each elsewhere."""

    def __init__(self) -> None:
        self.width = 0

    def __call__(self, words: str) -> None:
        live = sys.stderr.isatty()
        print(f"\r{words.ljust(self.width)}" if live else words, end="" if live else "\n", file=sys.stderr, flush=True)
        self.width = len(words) if live else 0

    def clear(self) -> None:
        """Before something is printed."""
        if self.width:
            print(f"\r{' ' * self.width}\r", end="", file=sys.stderr, flush=True)
            self.width = 0
