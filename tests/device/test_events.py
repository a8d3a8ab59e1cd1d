"""The bookkeeping of events, with arrays that finish when the test says so."""

from __future__ import annotations

import threading

import pytest

from torus import runtime
from torus.backend.device import events


class FakeArray:
    sharding = "a device"

    def __init__(self, error: Exception | None = None):
        self.ready = threading.Event()
        self.error = error


@pytest.fixture(autouse=True)
def _runtime(monkeypatch):
    def block(arrays):
        arrays[0].ready.wait()
        if arrays[0].error is not None:
            raise arrays[0].error

    monkeypatch.setattr(runtime, "is_ready", lambda array: array.ready.is_set(), raising=False)
    monkeypatch.setattr(runtime, "block_until_ready", block, raising=False)
    yield
    events._stop_watchers()


def test_nothing_launched_is_done():
    event = events.record_event(None, None, True)
    assert events.query_event(event) and events.query_event(None)
    events.synchronize_event(None)


def test_done_when_the_array_is():
    array = FakeArray()
    event = events.record_event(None, array, False)
    assert not events.query_event(event)
    array.ready.set()
    events.synchronize_event(event)
    assert events.query_event(event)


def test_time_is_that_of_completion_not_of_recording():
    first, second = FakeArray(), FakeArray()
    start, end = (events.record_event(None, a, True) for a in (first, second))
    with pytest.raises(RuntimeError, match="has not finished"):
        events.elapsed_time(start, end)
    first.ready.set()
    events.synchronize_event(start)
    threading.Event().wait(0.05)
    second.ready.set()
    events.synchronize_event(end)
    assert 50 <= events.elapsed_time(start, end) < 5000


def test_recording_again_replaces():
    event = events.record_event(None, None, True)
    array = FakeArray()
    again = events.record_event(event, array, True)
    assert events.query_event(event) and not events.query_event(again)
    array.ready.set()
    events.synchronize_event(again)


def test_a_failed_computation_is_raised():
    array = FakeArray(ValueError("broken"))
    event = events.record_event(None, array, True)
    array.ready.set()
    with pytest.raises(ValueError, match="broken"):
        events.synchronize_event(event)
    with pytest.raises(ValueError, match="broken"):
        events.elapsed_time(event, event)


def test_events_without_times():
    event = events.record_event(None, None, False)
    with pytest.raises(RuntimeError, match="enable_timing=True"):
        events.elapsed_time(event, event)
    with pytest.raises(RuntimeError, match="was not recorded"):
        events.elapsed_time(None, None)
