"""Values and comparisons for the tests of autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

X = torch.linspace(-2.0, 2.0, 12).reshape(3, 4)
W = torch.linspace(-1.0, 1.5, 20).reshape(5, 4)


def leaf(values: torch.Tensor, device: str) -> torch.Tensor:
    return values.detach().clone().to(device).requires_grad_()


def same(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, check_device=False, rtol=1e-5, atol=1e-6)


def agree(compute: Callable[[str], Any], device: str) -> None:
    """`compute` gives the same values on both devices."""
    same(compute(device), compute("cpu"))
