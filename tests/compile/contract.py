"""Tests of what PyTorch promises of `torch.compile`: the same words on the CPU, eagerly, and compiled on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.utils import counters

from tests.compile.compare import compiled, same

Wrap = Callable[..., Any]
"""What makes a function fast: on the CPU nothing, on the device `torch.compile`. It takes the options of `compiled`."""
Contract = Callable[[str, Wrap], Any]


def contract(run: Contract) -> Callable[[], None]:
    """A test: `run` gives on the device, with compiled functions, what it gives on the CPU with eager ones."""

    def test() -> None:
        expected = run("cpu", lambda fn, **options: fn)
        same(run("tpu", compiled), expected)

    test.__name__, test.__doc__, test.__module__ = run.__name__, run.__doc__, run.__module__
    return test


def graphs() -> int:
    """How many graphs Dynamo has found so far."""
    count: int = counters["stats"]["unique_graphs"]
    return count


def raises(call: Callable[[], Any]) -> bool:
    """Whether a call raises an exception."""
    try:
        call()
    except Exception:
        return True
    return False


def leaf(*values: float, device: str) -> torch.Tensor:
    """A vector that requires gradients."""
    return torch.tensor(values, device=device, requires_grad=True)
