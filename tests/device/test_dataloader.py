from __future__ import annotations

import warnings

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pin", [False, True])
def test_batches(workers, pin):
    data = TensorDataset(torch.arange(12.0).reshape(6, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = DataLoader(data, batch_size=3, num_workers=workers, pin_memory=pin)
        sums = [batch.to("tpu", non_blocking=True).sum().item() for (batch,) in loader]
    assert sums == [15, 51]


def test_pinned_memory_is_ordinary_memory():
    x = torch.ones(3).pin_memory()
    assert x.tolist() == [1, 1, 1]
    y = x.to("tpu", non_blocking=True)
    x.zero_()
    assert y.tolist() == [1, 1, 1]
    assert y.to("cpu", non_blocking=True).tolist() == [1, 1, 1]
