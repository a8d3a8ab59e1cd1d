"""torch.accelerator finds the device by itself."""

from __future__ import annotations

import torch


def test_current_accelerator():
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("tpu")
    assert torch.accelerator.current_device_index() == torch.tpu.current_device()
    assert torch.get_device_module("tpu") is torch.tpu
    assert torch.get_device_module() is torch.tpu


def test_device_and_stream():
    with torch.accelerator.device_index(0):
        assert torch.accelerator.current_device_index() == 0
    torch.accelerator.set_device_index(0)
    stream = torch.Stream("tpu")
    with stream:
        assert torch.accelerator.current_stream() == stream
    torch.accelerator.set_stream(torch.tpu.default_stream())
    torch.accelerator.synchronize()


def test_capability():
    assert torch.float32 in torch.accelerator.get_device_capability()["supported_dtypes"]


def test_memory():
    torch.accelerator.empty_cache()
    torch.accelerator.empty_host_cache()
    before = torch.accelerator.memory_allocated()
    torch.accelerator.reset_peak_memory_stats()
    x = torch.ones(1000, device="tpu")
    assert torch.accelerator.memory_allocated() == before + 4000 == torch.tpu.memory_allocated()
    assert torch.accelerator.max_memory_allocated() >= before + 4000
    assert torch.accelerator.memory_reserved() >= before + 4000
    assert torch.accelerator.max_memory_reserved() >= before + 4000
    del x
    assert torch.accelerator.memory_allocated() == before
    torch.accelerator.reset_accumulated_memory_stats()
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free <= total
    assert torch.accelerator.memory_stats()["allocated_bytes.all.current"] == before
