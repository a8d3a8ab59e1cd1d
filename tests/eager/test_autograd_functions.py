"""Checkpoints and autograd functions of one's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.eager.gradients import W, X, agree, leaf, same

# Checkpoints


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant: bool, device: str) -> None:
    def gradients(where: str) -> Any:
        x, w = leaf(X, where), leaf(W, where)
        y = checkpoint(lambda a, b: torch.tanh(F.gelu(F.linear(a, b))), x, w, use_reentrant=reentrant)
        y.sum().backward()
        return y.detach(), x.grad, w.grad

    agree(gradients, device)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_replays_dropout(reentrant: bool, device: str, seed: int) -> None:
    masks: list[torch.Tensor] = []

    def block(x: torch.Tensor) -> torch.Tensor:
        y = F.dropout(x, 0.5)
        masks.append((y == 0).detach().cpu())
        return y.exp()

    x = leaf(torch.ones(64, 4), device)
    out = checkpoint(block, x, use_reentrant=reentrant)
    out.sum().backward()
    assert len(masks) == 2
    assert torch.equal(masks[0], masks[1])
    assert 0 < masks[0].sum() < masks[0].numel()
    same(x.grad, torch.where(masks[0], 0.0, 2 * torch.tensor(2.0).exp()))


def test_checkpoint_leaves_the_random_stream_alone(device: str, seed: int) -> None:
    def draws(use_checkpoint: bool) -> torch.Tensor:
        torch.manual_seed(3)
        x = leaf(X, device)
        y = checkpoint(F.dropout, x, use_reentrant=False) if use_checkpoint else F.dropout(x)
        y.sum().backward()
        return torch.rand(4, device=device).cpu()

    assert torch.equal(draws(True), draws(False))


# Functions of one's own


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return scale * x**3

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return grad * ctx.scale * 3 * x**2, None


class DoubledInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad * 2


def test_custom_function(device: str) -> None:
    x = leaf(X, device)
    (first,) = torch.autograd.grad(Cube.apply(x, 2.0).sum(), x, create_graph=True)
    first.sum().backward()
    same(first.detach(), 6 * X**2)
    same(x.grad, 12 * X)


def test_custom_function_in_place(device: str) -> None:
    x = leaf(X, device)
    y = x.clone()
    z = DoubledInPlace.apply(y)
    assert z is y
    z.sum().backward()
    same(x.grad, torch.full((3, 4), 2.0))


def test_gradcheck(device: str) -> None:
    x = leaf(X.double(), device)
    assert torch.autograd.gradcheck(lambda t: Cube.apply(t, 2.0), (x,))
    assert torch.autograd.gradcheck(lambda t: torch.tanh(t) @ t.t(), (x,))
    assert torch.autograd.gradgradcheck(lambda t: torch.tanh(t).sum(0), (x,))
