"""Training one model on the CPU in float64 and on the device in float32, and comparing all that comes out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

TOLERANCE = 1e-5
NOISE = 4

Loss = Callable[..., Tensor]
MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Training:
    """What a few steps of training left, on the CPU: each step's loss, the last gradients, parameters and buffers."""

    losses: list[Tensor]
    gradients: dict[str, Tensor]
    state: dict[str, Tensor]


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def train(
    model: nn.Module,
    batch: Sequence[Tensor],
    loss: Loss,
    optimizer: MakeOptimizer,
    steps: int,
    device: str,
    dtype: torch.dtype,
) -> Training:
    """Train a copy of `model`; `loss` gets the model and the batch."""
    model = copy.deepcopy(model).to(device, dtype)
    batch = [move(t, device, dtype) for t in batch]
    update = optimizer(model.parameters())
    losses = []
    for _ in range(steps):
        update.zero_grad()
        value = loss(model, *batch)
        value.backward()
        update.step()
        losses.append(value.detach().cpu())
    gradients = {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}
    return Training(losses, gradients, {name: t.detach().cpu() for name, t in model.state_dict().items()})


def check_training(
    model: nn.Module,
    batch: Sequence[Tensor],
    loss: Loss,
    optimizer: MakeOptimizer = sgd,
    steps: int = 3,
    tolerance: float = TOLERANCE,
) -> None:
    """Losses, gradients, parameters and buffers of the device equal those of a float64 run within `tolerance`.

    A gradient may vanish on paper (the bias of attention's keys), so that only rounding is left of it: then the device
    may be `NOISE` times as far off as float32 on the CPU is.
    """
    exact, host, device = (
        train(model, batch, loss, optimizer, steps, *where)
        for where in (("cpu", torch.float64), ("cpu", torch.float32), ("tpu", torch.float32))
    )
    losses = (torch.stack(run.losses) for run in (device, exact, host))
    assert_near(*losses, tolerance=tolerance, what="losses")
    assert_all_near(device.gradients, exact.gradients, tolerance, host.gradients)
    assert_all_near(device.state, exact.state, tolerance, host.state)


def move(value: Any, device: str, dtype: torch.dtype = torch.float32) -> Any:
    """Tensors to `device`, floating ones in `dtype` too; anything else as it is."""
    if not isinstance(value, Tensor):
        return value
    return value.to(device, dtype) if value.is_floating_point() else value.to(device)


def assert_all_near(
    actual: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    tolerance: float = TOLERANCE,
    host: Mapping[str, Tensor] | None = None,
) -> None:
    """`assert_near` for each name."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert_near(actual[name], value, host[name] if host else None, tolerance, name)


def assert_near(
    actual: Tensor,
    expected: Tensor,
    host: Tensor | None = None,
    tolerance: float = TOLERANCE,
    what: str = "result",
) -> None:
    """The largest error is at most `tolerance` times the tensor's largest value, or `NOISE` times `host`'s error."""
    assert actual.shape == expected.shape, what
    actual, expected = actual.detach().cpu().double(), expected.detach().double()
    assert actual.isfinite().all(), f"{what} is not finite"
    if expected.numel() == 0:
        return
    error, scale = (actual - expected).abs().max().item(), expected.abs().max().item()
    noise = (host.detach().double() - expected).abs().max().item() if host is not None else 0.0
    limit = max(tolerance * scale, NOISE * noise)
    assert error <= limit, (
        f"{what}: error {error:.1e} over {limit:.1e}; values up to {scale:.1e}, CPU's error {noise:.1e}"
    )
