"""Autograd in several threads and processes."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from tests.device.process import run
from tests.eager.gradients import W, X, leaf, same
from tests.eager.together import numbered, together


def test_cpu_backward_before_the_first_device_backward() -> None:
    """The engine sizes its queues at the first backward of the process: the device must be counted by then."""
    code = """
        import torch, torus
        a = torch.ones(3, requires_grad=True)
        (a * 2).sum().backward()
        x = torch.ones(3, device="tpu", requires_grad=True)
        (x * 3).sum().backward()
        print(a.grad.tolist(), x.grad.tolist())
    """
    assert run(code) == "[2.0, 2.0, 2.0] [3.0, 3.0, 3.0]"


def test_backward_on_each_of_several_devices() -> None:
    code = """
        import torch, torus
        torch.ones(3, requires_grad=True).sum().backward()
        x = torch.ones(3, device="tpu:3", requires_grad=True)
        y = (x.to("tpu:1") * 2).to("tpu:2") + torch.ones(3, device="tpu:2")
        y.sum().backward()
        print(y.device, x.grad.device, x.grad.tolist())
    """
    assert run(code, TORUS_DEVICE_COUNT="4") == "tpu:2 tpu:3 [2.0, 2.0, 2.0]"


def test_backward_from_many_threads(device: str) -> None:
    results: dict[int, torch.Tensor] = {}

    def train(index: int) -> None:
        w = leaf(W * index, device)
        for _ in range(5):
            loss = F.linear(X.to(device), w).pow(2).mean()
            (g,) = torch.autograd.grad(loss, w)
            with torch.no_grad():
                w.sub_(g, alpha=0.1)
        results[index] = w.detach().cpu()

    def expected(index: int) -> torch.Tensor:
        w = leaf(W * index, "cpu")
        for _ in range(5):
            (g,) = torch.autograd.grad(F.linear(X, w).pow(2).mean(), w)
            with torch.no_grad():
                w.sub_(g, alpha=0.1)
        return w.detach()

    together(*numbered(train, 4))
    for index, w in results.items():
        same(w, expected(index))


def test_threads_accumulate_into_one_leaf(device: str) -> None:
    x = leaf(X, device)
    together(*numbered(lambda _: [(x * 2).sum().backward() for _ in range(10)] and None, 4))
    same(x.grad, torch.full((3, 4), 80.0))


def test_backward_of_one_graph_from_two_threads(device: str) -> None:
    x = leaf(X, device)
    shared = (x * x).exp()
    together(*numbered(lambda i: (shared * (i + 1)).sum().backward(retain_graph=True), 2))
    y = leaf(X, "cpu")
    ((y * y).exp() * 3).sum().backward()
    same(x.grad, y.grad)
