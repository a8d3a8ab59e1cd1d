"""What builds on autograd, recorded: double backward, hooks, checkpoint, torch.func, autocast, scaling, Captum."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.eager.fusing import WAYS, Counts, pending, running, settled


@pytest.fixture(autouse=True)
def _recording() -> Iterator[None]:
    with running():
        yield


def leaf(device: str, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(device).requires_grad_()


def double_backward(device: str) -> list[Tensor]:
    x = leaf(device, 4)
    (grad,) = torch.autograd.grad((x**3).sin().sum(), x, create_graph=True)
    grad.square().sum().backward()
    return [grad, x.grad]


def hooks(device: str) -> list[Tensor]:
    x, seen = leaf(device, 4), []
    y = x * 2
    y.register_hook(lambda grad: grad * 3)
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
    y.exp().sum().backward()
    return [x.grad, *seen]


def checkpointed(device: str) -> list[Tensor]:
    x = leaf(device, 3, 4)
    y = checkpoint(lambda t: (t @ t.t()).tanh(), x, use_reentrant=False)
    z = checkpoint(lambda t: t.exp() * t, y, use_reentrant=True)
    z.sum().backward()
    return [x.grad]


def transforms(device: str) -> list[Tensor]:
    x = leaf(device, 3, 4).detach()

    def f(t: Tensor) -> Tensor:
        return (t * t).sin().sum()

    _, tangent = torch.func.jvp(f, (x,), (torch.ones_like(x),))
    return [
        torch.func.grad(f)(x),
        torch.func.vmap(torch.func.grad(f))(x),
        torch.func.jacrev(lambda t: t.cumsum(0))(x[0]),
        torch.func.hessian(f)(x[0]),
        tangent,
    ]


def custom_function(device: str) -> list[Tensor]:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, t: Tensor) -> Tensor:
            ctx.save_for_backward(t)
            return t**3

        @staticmethod
        def backward(ctx: object, grad: Tensor) -> Tensor:
            (t,) = ctx.saved_tensors
            return 3 * t**2 * grad

    x = leaf(device, 4)
    Cube.apply(x).sum().backward()
    return [x.grad]


def in_place_in_the_graph(device: str) -> list[Tensor]:
    x = leaf(device, 3, 4)
    y = x * 2
    y[1].mul_(x[0])
    y.t()[2].add_(1)
    y.exp_().sum().backward()
    return [x.grad, y]


def accumulated(device: str) -> list[Tensor]:
    x = leaf(device, 4)
    for i in range(3):
        (x * i).sin().sum().backward()
    loss = x.exp().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    return [x.grad]


JOBS: list[Callable[[str], list[Tensor]]] = [
    double_backward,
    hooks,
    checkpointed,
    transforms,
    custom_function,
    in_place_in_the_graph,
    accumulated,
]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
@pytest.mark.filterwarnings("ignore:.*use_reentrant")
def test_agrees_with_the_cpu(job: Callable[[str], list[Tensor]], device: str) -> None:
    expected = job("cpu")
    for _ in range(2):
        for actual, wanted in zip(job(device), expected, strict=True):
            torch.testing.assert_close(actual.detach().cpu(), wanted.detach(), rtol=1e-5, atol=1e-6)


def test_anomalies_are_found(device: str) -> None:
    x = torch.tensor([-1.0], device=device, requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True), pytest.raises(RuntimeError, match="nan"):
        x.sqrt().sum().backward()


def test_a_write_to_a_saved_tensor_is_found_at_once(device: str) -> None:
    x = leaf(device, 4)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_an_error_in_a_hook_comes_through(device: str) -> None:
    x = leaf(device, 4)
    y = x * 2

    def fails(grad: Tensor) -> None:
        raise KeyError("planted")

    y.register_hook(fails)
    with pytest.raises(KeyError, match="planted"):
        y.sum().backward()
    assert (x.detach() * 0 + 1).tolist() == [1.0] * 4


def steps(way: str, cast: bool) -> list[Tensor]:
    with running(way):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to("tpu")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("tpu", init_scale=2.0**8, growth_interval=2)
        x, scales = torch.randn(6, 8, device="tpu"), []
        for i in range(5):
            optimizer.zero_grad()
            with torch.autocast("tpu", dtype=torch.bfloat16, enabled=cast):
                out = model(x)
                assert out.dtype is (torch.bfloat16 if cast else torch.float32)
                loss = out.float().square().mean() * (float("inf") if i == 2 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(torch.tensor(scaler.get_scale()))
        return [torch.stack(scales), *(p.detach().cpu() for p in model.parameters())]


@pytest.mark.parametrize("cast", [False, True], ids=["float32", "autocast"])
def test_gradient_scaling(cast: bool, device: str) -> None:
    expected = steps("strict", cast)
    for way in WAYS[1:]:
        for actual, wanted in zip(steps(way, cast), expected, strict=True):
            torch.testing.assert_close(actual, wanted, rtol=1e-5, atol=1e-6)


def test_backward_is_recorded_with_forward(device: str) -> None:
    (x,) = settled(leaf(device, 4))
    counts = Counts()
    F.gelu(x * 2).sum().backward()
    assert counts.flushes == 0 and pending(x.grad)
    settled()
    assert counts.flushes == counts.programs == 1


@pytest.mark.slow
def test_integrated_gradients_need_few_programs(device: str) -> None:
    captum = pytest.importorskip("captum.attr")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    x = torch.randn(4, 8)
    expected = captum.IntegratedGradients(model).attribute(x, target=1, n_steps=50)
    model, there = model.to(device), x.to(device)
    method = captum.IntegratedGradients(model)
    for _ in range(3):
        settled()
        counts = Counts()
        found = method.attribute(there, target=1, n_steps=50)
        settled()
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
    assert counts.programs <= 4 and counts.compiles == 0
