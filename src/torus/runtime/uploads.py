"""Writes to a shared store, in order, on one background thread, which the end of the process waits for a while."""

from __future__ import annotations

import atexit
import contextlib
import queue
import threading
import time
from collections.abc import Callable

from torus.runtime import forks
from torus.runtime.cache_errors import Unusable

STALLED = 60.0
"""Seconds that one write may take."""
FLUSH = 30.0
"""Seconds that the end of the process waits for what is left."""


class Uploads:
    """Does tasks one after the other. The first that fails, or takes too long, is told to `failed`, once, and is the
    last.
    """

    def __init__(self, failed: Callable[[str], None]) -> None:
        self._failed = failed
        self._stopped = False
        self._deadline: float | None = None
        forks.now_and_in_children(self._renew)

    def _renew(self) -> None:
        self.done = self.left = 0
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._began: float | None = None

    def submit(self, task: Callable[[], None]) -> None:
        """Have a task done; nothing happens after a failure. Never waits."""
        with self._changed:
            stalled = self._began is not None and time.monotonic() - self._began > STALLED
            if self._stopped or stalled:
                self._stopped, tell = True, not self._stopped
            else:
                tell = False
                self.left += 1
                self._tasks.put(task)
                self._start()
        if tell:
            self._failed(f"a write takes longer than {STALLED:.0f} seconds")

    def flush(self, seconds: float) -> bool:
        """Wait until all is done; False if it is not by then, or never will be."""
        with self._changed:
            self._changed.wait_for(self._is_over, max(0.0, seconds))
            return self.left == 0

    def stop(self) -> None:
        """Do nothing more; what was not begun is dropped."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _is_over(self) -> bool:
        alive = self._thread is not None and self._thread.is_alive()  # it is not in a forked child
        return self.left == 0 or self._stopped or not alive

    def _start(self) -> None:
        if self._thread is not None:
            return
        self._thread = threading.Thread(target=self._run, name="torus-upload", daemon=True)
        self._thread.start()
        atexit.register(self._end, last=True)
        # At exit proper it is too late for libraries that resolve names on an executor: those are shut down first.
        early = getattr(threading, "_register_atexit", None)
        if early is not None:
            with contextlib.suppress(RuntimeError):
                early(self._end)

    def _end(self, last: bool = False) -> None:
        """The process ends: wait, both times together, no longer than `FLUSH`."""
        if self._deadline is None:
            self._deadline = time.monotonic() + FLUSH
        flushed = self.flush(self._deadline - time.monotonic())
        with self._changed:
            tell = last and not flushed and not self._stopped and self._thread is not None and self._thread.is_alive()
            self._stopped |= last
        if tell:
            self._failed(f"the process ended before {self.left} writes were done")

    def _run(self) -> None:
        while not self._stopped:
            task = self._tasks.get()
            with self._changed:
                self._began = time.monotonic()
            try:
                task()
                failure = None
            except Exception as error:
                failure = describe(error)
            self._finished(failure)

    def _finished(self, failure: str | None) -> None:
        with self._changed:
            self._began = None
            tell = failure is not None and not self._stopped
            self._stopped |= tell
            self.left -= failure is None
            self.done += failure is None
            self._changed.notify_all()
        if failure is not None and tell:
            self._failed(failure)


def describe(error: Exception) -> str:
    """An error in one line; its type only where the text may not speak for itself."""
    text = " ".join(str(error).split())
    return text if isinstance(error, Unusable) else f"{type(error).__name__}: {text}"
