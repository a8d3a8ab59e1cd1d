from __future__ import annotations

import time

import pytest
import torch


def _work(n: int = 600) -> torch.Tensor:
    x = torch.ones(n, n, device="tpu")
    for _ in range(4):
        x = x @ x * 1e-3
    return x


def test_streams():
    default = torch.tpu.default_stream()
    assert torch.tpu.current_stream() == default
    other = torch.tpu.Stream()
    assert isinstance(other, torch.Stream) and other.device.type == "tpu" and other != default
    with torch.tpu.stream(other) as chosen:
        assert chosen == other == torch.tpu.current_stream()
        x = _work()
    assert torch.tpu.current_stream() == default
    torch.tpu.set_stream(other)
    assert torch.tpu.current_stream("tpu:0") == other
    torch.tpu.set_stream(default)
    with torch.tpu.stream(None):
        assert torch.tpu.current_stream() == default
    default.wait_stream(other)
    other.synchronize()
    assert other.query()
    x.record_stream(other)


def test_elapsed_time_is_that_of_the_work():
    _work()
    torch.tpu.synchronize()
    start, end = (torch.tpu.Event(enable_timing=True) for _ in range(2))
    start.record()
    before = time.perf_counter()
    _work()
    end.record()
    end.synchronize()
    wall = (time.perf_counter() - before) * 1e3
    assert end.query()
    # The wall time holds a thread's waking up too.
    assert 0.2 * wall < start.elapsed_time(end) <= wall + 1
    assert end.elapsed_time(start) == -start.elapsed_time(end)


def test_an_event_is_not_done_before_its_work():
    x = torch.ones(1500, 1500, device="tpu")
    x @ x
    torch.tpu.synchronize()
    event = torch.tpu.Event()
    y = x @ x
    event.record()
    if not event.query():
        event.synchronize()
    assert event.query()
    assert y[0, 0].item() == 1500


def test_events_that_tell_no_time():
    start, end = torch.tpu.Event(), torch.tpu.Event()
    with pytest.raises((RuntimeError, ValueError)):
        start.elapsed_time(end)
    start.record()
    end.record()
    torch.tpu.synchronize()
    with pytest.raises((RuntimeError, ValueError), match="enable_timing"):
        start.elapsed_time(end)


def test_waiting_between_streams():
    stream, event = torch.tpu.Stream(), torch.tpu.Event()
    event.record(stream)
    event.wait(torch.tpu.current_stream())
    stream.wait_event(event)
    recorded = stream.record_event()
    recorded.synchronize()
    assert recorded.query()
