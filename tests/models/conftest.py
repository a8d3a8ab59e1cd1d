from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import torus  # noqa: F401  makes the device exist where the package is not installed


@pytest.fixture(autouse=True)
def _no_fallback() -> Iterator[None]:
    """Models must run on the device alone: an op without a lowering is an error, and none may be counted."""
    before = torch.tpu.cpu_fallback
    torch.tpu.cpu_fallback = "error"
    torch.tpu.reset_counters()
    torch.manual_seed(0)
    yield
    torch.tpu.cpu_fallback = before
    assert torch.tpu.fallbacks() == {}
