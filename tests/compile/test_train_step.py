"""A training step as one program: the same training as op by op on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
}


def network() -> nn.Module:
    torch.manual_seed(0)
    # No bias where a norm follows: its gradient is noise, which some optimizers scale up.
    return nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(8, 1, 6, 6, generator=generator), torch.randint(5, (8,), generator=generator))
        for _ in range(count)
    ]


def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(model(x), y)


def step_of(model: nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> Callable[..., Any]:
    return torch.tpu.compiler.train_step(model, optimizer, loss, options={"fallback": False, **options})


def eager_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> float:
    value = loss(model, x, y)
    value.backward()
    optimizer.step()
    optimizer.zero_grad()
    return value.item()


def difference(a: nn.Module, b: nn.Module) -> float:
    return max(
        float((x.cpu().double() - y.double()).abs().max())
        for x, y in zip(a.state_dict().values(), b.state_dict().values())
    )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_that_of_the_cpu(device: str, name: str) -> None:
    wanted = network()
    model = copy.deepcopy(wanted).to(device)
    optimizer, reference = OPTIMIZERS[name](model.parameters()), OPTIMIZERS[name](wanted.parameters())
    step = step_of(model, optimizer)
    for i, (x, y) in enumerate(batches(5)):
        for each in (optimizer, reference):
            each.param_groups[0]["lr"] = 0.01 * (i + 1)
        assert float(step(x.to(device), y.to(device))) == pytest.approx(eager_step(wanted, reference, x, y), rel=2e-5)
    assert difference(model, wanted) < 2e-5


def test_a_warm_step_is_one_program_whatever_the_learning_rate(device: str) -> None:
    model = network().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    step = step_of(model, optimizer)
    x, y = (t.to(device) for t in batches(1)[0])
    step(x, y)
    before = torch.tpu.counters()
    for i in range(3):
        optimizer.param_groups[0]["lr"] = 1e-3 / (i + 1)
        step(x, y)
    after = torch.tpu.counters()
    assert after["programs"] - before["programs"] == 3
    assert after["compiles"] == before["compiles"]


def test_other_sizes_and_settings_are_other_programs(device: str) -> None:
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = step_of(model, optimizer)
    x, y = (t.to(device) for t in batches(1)[0])
    assert torch.isfinite(step(x, y)) and torch.isfinite(step(x[:4], y[:4]))
    before = model[4].weight.clone()
    optimizer.param_groups[0]["maximize"] = True
    optimizer.param_groups[0]["lr"] = 0.0
    step(x, y)
    assert torch.equal(model[4].weight, before)


def test_a_checkpoint_continues(device: str) -> None:
    data = [(x.to(device), y.to(device)) for x, y in batches(4)]
    model = network().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    step = step_of(model, optimizer)
    for x, y in data[:2]:
        step(x, y)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    wanted = [float(step(x, y)) for x, y in data[2:]]

    other = network().to(device)
    again = torch.optim.AdamW(other.parameters())
    other.load_state_dict(saved[0])
    again.load_state_dict(saved[1])
    resumed = step_of(other, again)
    assert [float(resumed(x, y)) for x, y in data[2:]] == wanted


def test_what_the_loss_returns_beside_it_comes_back(device: str) -> None:
    model = nn.Linear(3, 2).to(device)
    step = torch.tpu.compiler.train_step(
        model, torch.optim.SGD(model.parameters(), lr=0.0), lambda m, x: ((r := m(x)).square().mean(), {"output": r})
    )
    x = torch.randn(4, 3)
    value, found = step(x.to(device))
    wanted = copy.deepcopy(model).cpu()(x)
    assert not found["output"].requires_grad
    torch.testing.assert_close(found["output"].cpu(), wanted.detach())
    torch.testing.assert_close(value.cpu(), wanted.square().mean().detach())


def test_frozen_parameters_stay(device: str) -> None:
    model = network().to(device)
    model[0].weight.requires_grad_(False)
    before = model[0].weight.clone()
    step = step_of(model, torch.optim.SGD(model.parameters(), lr=0.1))
    x, y = (t.to(device) for t in batches(1)[0])
    step(x, y)
    assert torch.equal(model[0].weight, before)


def test_parameters_elsewhere_are_an_error(device: str) -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r'weight.*model\.to\("tpu"\)'):
        step_of(model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_an_optimizer_with_a_closure_is_an_error(device: str) -> None:
    model = nn.Linear(2, 2).to(device)
    with pytest.raises(ValueError, match="closure"):
        step_of(model, torch.optim.LBFGS(model.parameters()))


def test_what_is_frozen_later_stays(device: str) -> None:
    """Also a norm that is put in evaluation mode by itself."""
    model = network().to(device)
    step = step_of(model, torch.optim.SGD(model.parameters(), lr=0.1))
    x, y = (t.to(device) for t in batches(1)[0])
    step(x, y)
    model[4].weight.requires_grad_(False)
    model[1].eval()
    weight, mean = model[4].weight.clone(), model[1].running_mean.clone()
    step(x, y)
    assert torch.equal(model[4].weight, weight)
    assert torch.equal(model[1].running_mean, mean)
