from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.models.compare import assert_all_near, assert_near, check_training

ACTIVATIONS = [nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU, nn.Sigmoid, nn.LeakyReLU, nn.ELU, nn.Softplus, nn.Hardswish, nn.Mish]


def mlp(activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(64, 64), activation(), nn.Linear(64, 64), nn.LayerNorm(64), activation(), nn.Linear(64, 10)
    )


def classify(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(16, 64), torch.randint(10, (16,))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_training(activation: type[nn.Module]) -> None:
    check_training(mlp(activation), batch(), classify)


def test_gradient_accumulation() -> None:
    def twice(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        (classify(model, x[:8], y[:8]) / 2).backward()
        return classify(model, x[8:], y[8:]) / 2

    check_training(mlp(), batch(), twice)


def test_frozen_layer() -> None:
    model = mlp()
    model[0].requires_grad_(False)
    check_training(model, batch(), classify, lambda ps: torch.optim.SGD([p for p in ps if p.requires_grad], lr=0.1))


def test_checkpoint_replays_dropout() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5), nn.ReLU(), nn.Linear(64, 10)).to("tpu")
    x = torch.randn(16, 64, device="tpu")
    gradients = []
    for run in (model, lambda x: checkpoint(model, x, use_reentrant=False)):
        torch.manual_seed(7)
        model.zero_grad()
        run(x).square().mean().backward()
        gradients.append({name: p.grad.cpu() for name, p in model.named_parameters()})
    assert_all_near(gradients[1], gradients[0])


def test_learns_to_separate() -> None:
    """Not a comparison: training on the device alone must reach its goal."""
    torch.manual_seed(1)
    x = torch.randn(64, 2, device="tpu")
    y = (x[:, 0] * x[:, 1] > 0).long()
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2)).to("tpu")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(150):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    assert (model(x).argmax(1) == y).float().mean().item() > 0.95


def test_second_step_compiles_nothing() -> None:
    model, (x, y) = mlp().to("tpu"), (t.to("tpu") for t in batch())
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        classify(model, x, y).backward()
        optimizer.step()

    step()
    step()
    torch.tpu.reset_counters()
    step()
    assert torch.tpu.counters()["compiles"] == 0
    assert torch.tpu.counters()["cache_hits"] == 0


def test_double_backward() -> None:
    def gradient_penalty(device: str, dtype: torch.dtype) -> list[Tensor]:
        own = copy.deepcopy(model).to(device, dtype)
        point = x.to(device, dtype).requires_grad_()
        (slope,) = torch.autograd.grad(own(point).sum(), point, create_graph=True)
        return list(torch.autograd.grad(slope.square().sum(), list(own.parameters()), allow_unused=True))

    model, (x, _) = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 1)), batch()
    actual, expected = gradient_penalty("tpu", torch.float32), gradient_penalty("cpu", torch.float64)
    assert [g is None for g in actual] == [g is None for g in expected]
    for a, e in zip(actual, expected):
        if e is not None:
            assert_near(a, e)
