from __future__ import annotations

import torch
from torch.profiler import ProfilerActivity, profile, record_function


def test_the_activity_has_the_name_of_the_device():
    assert ProfilerActivity.TPU is ProfilerActivity.PrivateUse1


def test_ops_are_recorded():
    x = torch.ones(8, 8, device="tpu")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiler, record_function("block"):
        (x @ x).sum().item()
    names = {event.key for event in profiler.key_averages()}
    assert {"block", "aten::mm", "aten::sum"} <= names
