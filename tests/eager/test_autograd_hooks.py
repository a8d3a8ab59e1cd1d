"""Hooks of autograd, on tensors, modules, nodes, and saved tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.device.process import run
from tests.eager.gradients import W, X, leaf, same

# Hooks


def test_tensor_hooks(device: str) -> None:
    x, seen = leaf(X, device), []
    y = x * 2
    y.register_hook(lambda g: seen.append(g.cpu()))
    y.register_hook(lambda g: g * 10)
    y.retain_grad()
    y.sum().backward()
    same(seen, [torch.ones(3, 4)])
    same(x.grad, torch.full((3, 4), 20.0))
    same(y.grad, torch.full((3, 4), 10.0))


def test_post_accumulate_grad_hook(device: str) -> None:
    """An optimizer step inside backward, as memory-saving training loops do it."""
    x = leaf(X, device)

    def step(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        with torch.no_grad():
            parameter.sub_(parameter.grad, alpha=0.5)
        parameter.grad = None

    x.register_post_accumulate_grad_hook(step)
    (x * x).sum().backward()
    same(x.detach(), torch.zeros(3, 4))
    assert x.grad is None


def test_module_hooks(device: str) -> None:
    layer, calls = nn.Linear(4, 2).to(device), []
    layer.register_forward_pre_hook(lambda m, args: calls.append("pre"))
    layer.register_forward_hook(lambda m, args, out: calls.append("forward"))
    layer.register_full_backward_pre_hook(lambda m, g: calls.append("backward pre"))
    layer.register_full_backward_hook(lambda m, g, h: calls.append((g[0].shape, h[0].shape)))
    layer(leaf(X, device)).sum().backward()
    assert calls == ["pre", "forward", "backward pre", (torch.Size([3, 4]), torch.Size([3, 2]))]


def test_node_hooks(device: str) -> None:
    x, shapes = leaf(X, device), []
    y = (x * 2).sum()
    y.grad_fn.register_prehook(lambda g: shapes.append(g[0].shape))
    y.grad_fn.register_hook(lambda g, h: shapes.append(g[0].shape))
    y.backward()
    assert shapes == [torch.Size([]), torch.Size([3, 4])]


class Refused(Exception):
    pass


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        raise Refused("no")


def _refuse(*_: Any) -> None:
    raise Refused("no")


@pytest.mark.parametrize("place", ["tensor", "post accumulate", "module", "function"])
def test_exception_in_a_backward_hook_is_a_python_exception(place: str, device: str) -> None:
    x = leaf(X, device)
    y = x * 2
    if place == "tensor":
        y.register_hook(_refuse)
    elif place == "post accumulate":
        x.register_post_accumulate_grad_hook(_refuse)
    elif place == "module":
        layer = nn.Linear(4, 2).to(device)
        layer.register_full_backward_hook(_refuse)
        y = layer(y)
    else:
        y = Failing.apply(y)
    with pytest.raises(Refused, match="no"):
        y.sum().backward()
    z = leaf(X, device)
    (z * 3).sum().backward()  # the engine still works
    same(z.grad, torch.full((3, 4), 3.0))


def test_exception_in_a_hook_does_not_abort_the_process() -> None:
    code = """
        import torch, torus
        x = torch.ones(3, device="tpu", requires_grad=True)
        x.register_hook(lambda g: 1 / 0)
        try:
            (x * x).sum().backward()
        except ZeroDivisionError:
            print("raised")
    """
    assert run(code) == "raised"


# Saved tensors


def test_saved_tensor_hooks(device: str) -> None:
    packed: list[torch.Tensor] = []

    def pack(t: torch.Tensor) -> torch.Tensor:
        packed.append(t)
        return t.cpu()

    x = leaf(X, device)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.to(device)):
        y = (x * x).sum()
    y.backward()
    assert packed and all(t.device.type == device for t in packed)
    same(x.grad, 2 * X)


@pytest.mark.parametrize("pin", [False, True])
def test_save_on_cpu(pin: bool, device: str) -> None:
    x, w = leaf(X, device), leaf(W, device)
    with torch.autograd.graph.save_on_cpu(pin_memory=pin, device_type=device):
        loss = F.linear(x, w).exp().sum()
    loss.backward()
    x2, w2 = leaf(X, "cpu"), leaf(W, "cpu")
    F.linear(x2, w2).exp().sum().backward()
    same((x.grad, w.grad), (x2.grad, w2.grad))


def test_disabled_saved_tensor_hooks(device: str) -> None:
    x = leaf(X, device)
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        (x * x).sum().backward()
    same(x.grad, 2 * X)
