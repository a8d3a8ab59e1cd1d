"""A thread that works through tasks in the background."""

from __future__ import annotations

import atexit
import queue
import sys
import threading
from collections.abc import Callable

from torus.runtime import forks


class Worker:
    """One thread that compiles what it is given, in order. At exit it ends after the program that it is at."""

    def __init__(self) -> None:
        self._stopped = False
        forks.now_and_in_children(self._renew)

    def _renew(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._left = 0
        self._idle = threading.Condition(self._lock)

    def submit(self, task: Callable[[], None]) -> None:
        with self._lock:
            if self._stopped:
                return
            self._left += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="torus-fuse", daemon=True)
                self._thread.start()
                atexit.register(self.stop)
        self._tasks.put(task)

    def is_this_thread(self) -> bool:
        """Whether the caller is one of the tasks."""
        return threading.current_thread() is self._thread

    def wait(self, timeout: float | None) -> bool:
        """Wait until all that was given is done."""
        with self._idle:
            return self._idle.wait_for(lambda: self._left == 0, timeout)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None and not self._stopped:
            try:
                task()
            except BaseException:  # a warning made an error, say
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
            with self._idle:
                self._left -= 1
                self._idle.notify_all()

    def stop(self) -> None:
        """End the thread; a compiler cannot be interrupted, so this waits for one program."""
        self._stopped = True
        self._tasks.put(None)
        if self._thread is not None:
            self._thread.join()
