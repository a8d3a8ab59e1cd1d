"""Padding and its gradients against CPU PyTorch."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.agree import agrees, unexercised
from tests.lowering.evaluate import evaluate
from torus.backend.lowering import padding

aten = torch.ops.aten
SIZES = {1: (2, 3, 7), 2: (2, 3, 6, 7), 3: (3, 5, 6, 7)}


def randn(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", ["reflection", "replication"])
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("amounts", [[1, 2, 3, 0, 2, 2], [-1, 2, 0, 1, -2, 1], [0, 0, 0, 0, 0, 0]])
def test_mirrored_pads(kind: str, n: int, amounts: list[int]) -> None:
    forward, backward = getattr(aten, f"{kind}_pad{n}d").default, getattr(aten, f"{kind}_pad{n}d_backward").default
    x, pad = randn(*SIZES[n]), amounts[: 2 * n]
    agrees(forward, x, pad)
    agrees(backward, randn(*forward(x, pad).shape), x, pad)


def test_replication_of_a_tensor_cropped_to_nothing() -> None:
    x, pad = randn(5, 3, 4, 4), [-4, 5, 0, 0]
    agrees(aten.replication_pad2d.default, x, pad)
    agrees(aten.replication_pad2d_backward.default, randn(5, 3, 4, 5), x, pad)


@pytest.mark.parametrize("pad", [[1, 2], [-1, 2, 3, 0], [0, -2, 1, 1, 2, 0]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_constant_pad(pad: list[int], dtype: torch.dtype) -> None:
    agrees(aten.constant_pad_nd.default, (randn(3, 4, 5) * 3).to(dtype), pad, 1)


def test_constant_pad_keeps_the_sign_of_zero() -> None:
    padded = evaluate(aten.constant_pad_nd.default, torch.ones(1), [1, 1], -0.0)
    assert torch.signbit(padded).tolist() == [True, False, True]


def test_every_rule_is_exercised() -> None:
    names = [
        f"{kind}_pad{n}d{suffix}"
        for kind in ("reflection", "replication")
        for n in (1, 2, 3)
        for suffix in ("", "_backward")
    ]
    assert not unexercised(padding, [aten.constant_pad_nd.default, *[getattr(aten, name).default for name in names]])
