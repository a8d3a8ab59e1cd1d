"""The end of a process waits a moment for the threads of PyTorch's autograd engine.

An engine's thread drops the last of a graph after it has told the waiting thread that the backward pass is done. What
it drops may be Python's, and a thread that asks for the GIL while Python ends is itself ended, in the middle of a
destructor, which aborts the process.
"""

from __future__ import annotations

import time
from pathlib import Path

_TASKS = Path("/proc/self/task")
_ENGINE = "pt_autograd"
"""How PyTorch names these threads."""


def wait_for_engine(limit: float = 0.1, tasks: Path = _TASKS) -> bool:
    """Whether all of the engine's threads sleep, after at most `limit` seconds; true where no threads are listed."""
    end = time.monotonic() + limit
    threads = [path.parent for path in tasks.glob("*/comm") if _read(path).startswith(_ENGINE)]
    while threads:
        time.sleep(0.0005)  # without the GIL, for which one may wait
        if all(_sleeps(thread) for thread in threads):
            return True
        if time.monotonic() > end:
            return False
    return True


def _sleeps(thread: Path) -> bool:
    state = _read(thread / "stat").rpartition(")")[2].split()[:1]  # behind the name, which may be anything
    return state in (["S"], [])


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # the thread has ended
