"""Training with compiled parts: autocast, gradient scaling, own autograd functions, checkpoints, optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.compile.compare import agree, compiled, moved, randn, same

X = randn(4, 5)
Wrap = Callable[[Any], Any]


def both(run: Callable[[Wrap], Any], tolerance: float | None = None, **options: Any) -> None:
    """`run` gives the same on the device with compiled functions as with eager ones."""
    torch.manual_seed(3)
    expected = run(lambda fn: fn)
    torch.manual_seed(3)
    same(run(lambda fn: compiled(fn, **options)), expected, tolerance)


def _autocast_inside(wrap: Wrap) -> Any:
    x, w = moved(X, "tpu").requires_grad_(), torch.ones(5, 3, device="tpu", requires_grad=True)

    def fn(x: torch.Tensor, w: torch.Tensor) -> Any:
        with torch.autocast("tpu", dtype=torch.bfloat16):
            return x @ w, torch.softmax(x @ w, -1), F.layer_norm(x @ w, (3,))

    results = wrap(fn)(x, w)
    results[0].float().sum().backward()
    return [r.detach() for r in results], x.grad, w.grad


def _autocast_outside(wrap: Wrap) -> Any:
    x, w = moved(X, "tpu").requires_grad_(), torch.ones(5, 3, device="tpu", requires_grad=True)
    fn = wrap(lambda x, w: (x @ w).relu())
    with torch.autocast("tpu", dtype=torch.bfloat16):
        result = fn(x, w)
    result.float().sum().backward()
    assert result.dtype is torch.bfloat16
    return result.detach(), x.grad, w.grad


@pytest.mark.parametrize("run", [_autocast_inside, _autocast_outside])
def test_autocast(run: Callable[[Wrap], Any]) -> None:
    both(run, 4e-3)  # fewer roundings to bfloat16 than in eager mode


def test_autocast_that_is_turned_off_again_is_seen() -> None:
    fn, x = compiled(lambda x: x @ x.t()), X.to("tpu")
    with torch.autocast("tpu", dtype=torch.bfloat16):
        assert fn(x).dtype is torch.bfloat16
    assert fn(x).dtype is torch.float32


class ThriceTheGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 3 * grad * x


def test_own_autograd_function() -> None:
    agree(lambda x: ThriceTheGradient.apply(x) + 1, randn(3), backward=True)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_draws_its_random_numbers_once(reentrant: bool, seed: int) -> None:
    def run(wrap: Wrap) -> Any:
        x = moved(X, "tpu").requires_grad_()

        def block(x: torch.Tensor) -> torch.Tensor:
            return F.dropout(x.sin(), 0.5).cos() * torch.rand_like(x)

        y = wrap(lambda x: checkpoint(block, x, use_reentrant=reentrant))(x)
        y.sum().backward()
        return y.detach(), x.grad

    both(run, fallback=reentrant)


def _scaled_steps(wrap: Wrap) -> Any:
    model = nn.Linear(5, 4).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("tpu", init_scale=8.0, growth_interval=1)
    loss_of = wrap(lambda x: model(x).square().sum())
    for i in range(3):
        scaler.scale(loss_of(X.to("tpu"))).backward()
        if i == 1:
            assert model.weight.grad is not None
            model.weight.grad[0, 0] = torch.inf
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return [p.detach() for p in model.parameters()], scaler.get_scale()


def test_gradient_scaling_skips_steps_of_infinite_gradients(seed: int) -> None:
    both(_scaled_steps)


def _whole_step(wrap: Wrap) -> Any:
    model = nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5), nn.Linear(4, 2)).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(x).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    fast = wrap(step)
    return [fast(X.to("tpu")) for _ in range(3)], [p.detach() for p in model.parameters()]


def test_a_step_in_one_function(seed: int) -> None:
    both(_whole_step)


OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9}),
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {"amsgrad": True}),
}


def _optimize(device: str, backend: str, make: type[torch.optim.Optimizer], settings: dict[str, Any]) -> Any:
    """Parameters and state after three steps. Compiled on the CPU too, where steps count in float32 as they do then."""
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))
    for i, p in enumerate(model.parameters()):
        nn.init.uniform_(p, -1, 1, torch.Generator().manual_seed(i))
    model.to(device)
    optimizer = make(model.parameters(), lr=0.1, **settings)  # type: ignore[call-arg]
    step = torch.compile(lambda: optimizer.step(), backend=backend)
    for _ in range(3):
        optimizer.zero_grad()
        model(X.to(device)).square().sum().backward()
        step()
    state = [dict(sorted(s.items())) for s in optimizer.state.values()]
    return [p.detach() for p in model.parameters()], state


@pytest.mark.parametrize("foreach", [False, True], ids=["single", "foreach"])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_compiled_optimizers(name: str, foreach: bool) -> None:
    make, settings = OPTIMIZERS[name]
    settings = settings | {"foreach": foreach}
    actual, expected = _optimize("tpu", "tpu", make, settings), _optimize("cpu", "aot_eager", make, settings)
    same(actual, expected, 5e-6)
    steps = [s["step"] for s in actual[1] if "step" in s]
    assert all(step.device.type == "cpu" and step.item() == 3 for step in steps)


def test_steps_of_an_optimizer_compile_once() -> None:
    model = nn.Linear(3, 2).to("tpu")
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    step = compiled(lambda: optimizer.step())

    def train() -> None:
        model(torch.ones(1, 3, device="tpu")).sum().backward()
        step()

    train(), train(), train()
    before = torch.tpu.cache.stats()["requests"]
    train(), train()
    assert torch.tpu.cache.stats()["requests"] == before
