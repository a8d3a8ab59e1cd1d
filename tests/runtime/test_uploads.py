"""Background writes: in order, never waited for, and over after the first failure."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable

import pytest

from torus.runtime import uploads
from torus.runtime.uploads import Uploads


@pytest.fixture
def failures() -> list[str]:
    return []


@pytest.fixture
def queue(failures: list[str]) -> Uploads:
    return Uploads(failures.append)


def fail() -> None:
    raise OSError("the disk is on fire")


def test_in_order_and_counted(queue: Uploads, failures: list[str]) -> None:
    done: list[int] = []
    for number in range(20):
        queue.submit(lambda number=number: done.append(number))  # type: ignore[misc]
    assert queue.flush(10)
    assert done == list(range(20)) and (queue.done, queue.left, failures) == (20, 0, [])


def test_submitting_does_not_wait(queue: Uploads) -> None:
    release = threading.Event()
    queue.submit(lambda: release.wait(10) and None)
    queue.submit(lambda: None)
    assert not queue.flush(0.05) and queue.left == 2
    release.set()
    assert queue.flush(10)


def test_the_first_failure_is_told_and_the_last(queue: Uploads, failures: list[str]) -> None:
    done: list[Callable[[], None]] = []
    queue.submit(fail)
    assert not queue.flush(10)
    queue.submit(lambda: done.append(fail))
    queue.submit(fail)
    assert not queue.flush(0.1)
    assert failures == ["OSError: the disk is on fire"] and done == []


def test_a_write_that_hangs_is_given_up(queue: Uploads, failures: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "STALLED", 0.05)
    release = threading.Event()
    queue.submit(lambda: release.wait(10) and None)
    time.sleep(0.2)
    queue.submit(lambda: None)
    queue.submit(lambda: None)
    assert failures == ["a write takes longer than 0 seconds"]
    release.set()


def test_the_end_of_the_process_waits_for_a_limited_time(
    queue: Uploads, failures: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "FLUSH", 0.2)
    release = threading.Event()
    queue.submit(lambda: release.wait(10) and None)
    started = time.monotonic()
    queue._end()
    queue._end(last=True)
    assert 0.1 < time.monotonic() - started < 2
    assert failures == ["the process ended before 1 writes were done"]
    release.set()


def test_a_forked_child_does_not_wait(python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """Forked at any moment, also while the thread that uploads holds the lock of what it works through."""
    code = """
import os, time
from torus.runtime.uploads import Uploads
started = time.monotonic()
for _ in range(20):
    uploads = Uploads(print)
    uploads.submit(lambda: time.sleep(5))
    if os.fork() == 0:
        sys.exit(0)
    os.wait()
    uploads.stop()
print(time.monotonic() - started < 4)
"""
    assert python(code).stdout == "True\n"


def test_a_forked_child_uploads_on_a_thread_of_its_own(
    python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    code = """
import os
from torus.runtime.uploads import Uploads
uploads = Uploads(print)
uploads.submit(lambda: None)
if os.fork() == 0:
    uploads.submit(lambda: print("from the child", flush=True))
    sys.exit(0)
os.wait()
"""
    assert python(code).stdout == "from the child\n"


def test_the_last_writes_may_use_executors(python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """Networking libraries resolve names on executors, which Python shuts down before it calls what is registered."""
    code = """
import time
from concurrent.futures import ThreadPoolExecutor
from torus.runtime.uploads import Uploads
uploads = Uploads(print)
uploads.submit(lambda: time.sleep(0.3))
uploads.submit(lambda: print(ThreadPoolExecutor().submit(str.upper, "resolved").result()))
"""
    assert python(code).stdout == "RESOLVED\n"
