"""What the device guard calls for events: when the work launched before a point has finished, and at what time."""

from __future__ import annotations

import atexit
import queue
import threading
import time
from typing import Any

from torus import runtime


class Recorded:
    """One recording of an event: done once the array that was launched last before it is ready."""

    __slots__ = ("done", "error", "finished_ns", "timing")

    def __init__(self, timing: bool) -> None:
        self.timing = timing
        self.done = threading.Event()
        self.finished_ns = 0
        self.error: BaseException | None = None

    def finish(self, error: BaseException | None = None) -> None:
        """Stamp the time and wake those who wait."""
        self.finished_ns = time.perf_counter_ns()
        self.error = error
        self.done.set()


class _Watcher:
    """A thread that waits for the arrays of one device in the order in which they were recorded."""

    def __init__(self) -> None:
        self._pending: queue.SimpleQueue[tuple[Recorded, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="torus-events", daemon=True)
        self._thread.start()

    def watch(self, event: Recorded, array: Any) -> None:
        self._pending.put((event, array))

    def stop(self) -> None:
        """Finish what is pending: a thread must not be inside the runtime when the interpreter goes away."""
        self._pending.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._pending.get()) is not None:
            event, array = item
            try:
                runtime.block_until_ready([array])
            except Exception as error:
                event.finish(error)
            else:
                event.finish()
            del item, event, array  # the last array of a device must not stay alive until the next event


_watchers: dict[Any, _Watcher] = {}
_lock = threading.Lock()


def _watcher_of(array: Any) -> _Watcher:
    with _lock:
        watcher = _watchers.get(array.sharding)
        if watcher is None:
            watcher = _watchers[array.sharding] = _Watcher()
        return watcher


@atexit.register
def _stop_watchers() -> None:
    with _lock:
        watchers = list(_watchers.values())
        _watchers.clear()
    for watcher in watchers:
        watcher.stop()


def record_event(previous: Recorded | None, last_array: Any, timing: bool) -> Recorded:
    """A new recording after `last_array`, the last that was launched (None: nothing was); it replaces `previous`."""
    event = Recorded(timing)
    if last_array is None or runtime.is_ready(last_array):
        event.finish()
    else:
        _watcher_of(last_array).watch(event, last_array)
    return event


def query_event(event: Recorded | None) -> bool:
    """Whether all work before the recording has finished; an event that was never recorded is finished."""
    return event is None or event.done.is_set()


def synchronize_event(event: Recorded | None) -> None:
    """Wait for the work before the recording. Raises what its computation raised."""
    if event is None:
        return
    event.done.wait()
    if event.error is not None:
        raise event.error


def elapsed_time(start: Recorded | None, end: Recorded | None) -> float:
    """Milliseconds between the moments at which the work before each of two recordings finished.

    Raises RuntimeError when either was not recorded, was made without ``enable_timing=True``, or has not finished.
    """
    return (_stamp(end, "end") - _stamp(start, "start")) / 1e6


def _stamp(event: Recorded | None, which: str) -> int:
    if event is None:
        raise RuntimeError(f"the {which} event was not recorded; call record() before elapsed_time()")
    if not event.timing:
        raise RuntimeError(f"the {which} event keeps no time; make it with torch.tpu.Event(enable_timing=True)")
    if not event.done.is_set():
        raise RuntimeError(
            f"the work before the {which} event has not finished; call synchronize() before elapsed_time()"
        )
    if event.error is not None:
        raise event.error
    return event.finished_ns
