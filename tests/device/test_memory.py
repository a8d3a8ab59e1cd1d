from __future__ import annotations

import torch


def test_live_bytes_are_counted_once():
    before = torch.tpu.memory_allocated()
    x = torch.ones(256, 4, device="tpu")
    y = x.view(-1)[3:]
    z = x.clone()
    assert torch.tpu.memory_allocated() - before in (
        4096,
        8192,
    )  # a copy may share the value until one of them is written
    z.add_(1)
    assert torch.tpu.memory_allocated() - before == 8192
    del x, z
    assert torch.tpu.memory_allocated() - before == 4096
    del y
    assert torch.tpu.memory_allocated() == before


def test_peak():
    before = torch.tpu.memory_allocated()
    torch.tpu.reset_peak_memory_stats()
    assert torch.tpu.max_memory_allocated() == before
    x = torch.ones(1024, device="tpu")
    del x
    assert torch.tpu.max_memory_allocated() == before + 4096 == torch.tpu.max_memory_reserved()
    torch.tpu.reset_max_memory_allocated()
    assert torch.tpu.max_memory_allocated() == before


def test_reports():
    x = torch.ones(2**18, device="tpu")
    free, total = torch.tpu.mem_get_info("tpu:0")
    assert 0 < free <= total
    assert torch.tpu.memory_stats()["allocated_bytes.all.current"] == torch.tpu.memory_allocated()
    assert "memory of tpu:0" in torch.tpu.memory_summary()
    assert "in all" not in torch.tpu.memory_summary(abbreviated=True)
    assert torch.tpu.memory_reserved(0) == torch.tpu.memory_allocated(0) >= x.nbytes
    torch.tpu.empty_cache()
    torch.tpu.reset_accumulated_memory_stats()
    assert torch.tpu.memory_stats()["allocated_bytes.all.allocated"] == 0
