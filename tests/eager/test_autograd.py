"""Autograd through the device: gradients, writes, functional transforms, modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.eager.gradients import W, X, agree, leaf, same

# Gradients


def test_backward_of_a_sum(device: str) -> None:
    x = torch.randn(8, device=device, requires_grad=True)
    x.sum().backward()
    assert x.grad is not None
    assert x.grad.device.type == device
    assert x.grad.cpu().tolist() == [1] * 8


LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "linear": lambda x, w: F.linear(x, w).pow(2).mean(),
    "softmax": lambda x, w: F.cross_entropy(x @ w.t(), torch.tensor([0, 3, 1]).to(x.device)),
    "norm": lambda x, w: F.layer_norm(x, (4,)).mul(w[:3]).exp().sum(),
    "views": lambda x, w: (x.t()[1:].reshape(3, 3) @ w[:3, ::2]).diagonal().prod(),
    "index": lambda x, w: (x[torch.tensor([0, 2, 2]).to(x.device)] * w[1:4]).sigmoid().sum(),
    "broadcast": lambda x, w: (x[:, None] * w).relu().logsumexp((0, 1)).sum(),
    "in place": lambda x, w: x.clone().mul_(2).add_(w[:3]).clamp_(-2, 2).tanh_().sum(),
    "where": lambda x, w: torch.where(x > 0, x * w[0], x.cumsum(1)).std(),
    "cat": lambda x, w: torch.cat((x, w)).unfold(0, 2, 2).norm(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients(name: str, device: str) -> None:
    def gradients(where: str) -> Any:
        x, w = leaf(X, where), leaf(W, where)
        loss = LOSSES[name](x, w)
        loss.backward()
        return loss.detach(), x.grad, w.grad

    agree(gradients, device)


def test_gradients_accumulate(device: str) -> None:
    def gradients(where: str) -> Any:
        x = leaf(X, where)
        for _ in range(3):
            (x * x).sum().backward()
        return x.grad

    agree(gradients, device)


@pytest.mark.parametrize("name", ["linear", "softmax", "norm", "index", "broadcast"])
def test_double_backward(name: str, device: str) -> None:
    def gradients(where: str) -> Any:
        x, w = leaf(X, where), leaf(W, where)
        (first,) = torch.autograd.grad(LOSSES[name](x, w), x, create_graph=True)
        first.pow(2).sum().backward()
        return first.detach(), x.grad, w.grad

    agree(gradients, device)


def test_second_backward_without_the_graph_raises(device: str) -> None:
    x = leaf(X, device)
    loss = (x * x).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_gradient_of_the_wrong_shape_raises(device: str) -> None:
    x = leaf(X, device)
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        (x * 2).backward(torch.ones(2, device=device))


# In-place and views


def test_in_place_on_a_view(device: str) -> None:
    def gradients(where: str) -> Any:
        x = leaf(X, where)
        y = x * 2
        y.t()[1].mul_(3)
        y[:, 2:].copy_(x[:, :2])
        y.sigmoid().sum().backward()
        return y.detach(), x.grad

    agree(gradients, device)


def test_in_place_on_a_view_rewrites_its_graph(device: str) -> None:
    x = leaf(X, device)
    y = x * 2
    view = y[0]
    view.add_(1)
    assert type(y.grad_fn).__name__ == "CopySlices"
    assert type(view.grad_fn).__name__ == "AsStridedBackward0"


def test_in_place_on_a_leaf_raises(device: str) -> None:
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        leaf(X, device).add_(1)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        leaf(X, device)[0].add_(1)


def test_write_to_a_saved_tensor_raises(device: str) -> None:
    x = leaf(X, device)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_one_of_several_views_refuses_a_write(device: str) -> None:
    x = leaf(X, device) * 1
    with pytest.raises(RuntimeError, match="Output 0 of Unbind is a view"):
        x.unbind(0)[0].add_(1)


# torch.func


def network(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(F.linear(x, w)).pow(2).sum(-1)


TRANSFORMS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "grad": lambda w, x: torch.func.grad(lambda p: network(p, x).sum())(w),
    "grad_and_value": lambda w, x: torch.func.grad_and_value(lambda p: network(p, x).sum())(w),
    "grad of grad": lambda w, x: torch.func.grad(lambda t: torch.func.grad(lambda s: (s**3).sum())(t).sum())(x),
    "vmap": lambda w, x: torch.func.vmap(network, in_dims=(None, 0))(w, x),
    "per-sample gradients": lambda w, x: torch.func.vmap(torch.func.grad(network), in_dims=(None, 0))(w, x),
    "jvp": lambda w, x: torch.func.jvp(lambda t: network(w, t), (x,), (torch.ones_like(x),)),
    "vjp": lambda w, x: torch.func.vjp(lambda t: network(w, t), x)[1](torch.ones(3).to(x.device)),
    "jacrev": lambda w, x: torch.func.jacrev(lambda t: network(w, t))(x),
    "jacfwd": lambda w, x: torch.func.jacfwd(lambda t: network(w, t))(x),
    "hessian": lambda w, x: torch.func.hessian(lambda t: network(w, t).sum())(x[:1]),
    "functionalize": lambda w, x: torch.func.functionalize(lambda t: t.clone().add_(1)[0].mul_(2))(x),
    "linearize": lambda w, x: torch.func.linearize(lambda t: network(w, t), x)[1](torch.ones_like(x)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_functional_transforms(name: str, device: str) -> None:
    agree(lambda where: TRANSFORMS[name](W.to(where), X.to(where)), device)


def test_functional_call_and_stacked_modules(device: str) -> None:
    torch.manual_seed(0)
    models = [nn.Linear(4, 2) for _ in range(3)]

    def outputs(where: str) -> Any:
        moved = [nn.Linear(4, 2).to(where) for _ in models]
        for new, old in zip(moved, models):
            new.load_state_dict(old.state_dict())
        parameters, buffers = torch.func.stack_module_state(moved)  # type: ignore[arg-type]
        call = lambda p, b, x: torch.func.functional_call(moved[0], (p, b), (x,))  # noqa: E731
        return torch.func.vmap(call, in_dims=(0, 0, None))(parameters, buffers, X.to(where)).detach()

    agree(outputs, device)


def test_vmap_over_random_numbers(device: str, seed: int) -> None:
    rows = torch.func.vmap(lambda x: x + torch.rand_like(x), randomness="different")(
        torch.zeros(3, 4, device=device)
    ).cpu()
    assert rows.unique().numel() == 12
    rows = torch.func.vmap(lambda x: x + torch.rand_like(x), randomness="same")(torch.zeros(3, 4, device=device)).cpu()
    assert torch.equal(rows[0], rows[2])


def test_forward_mode(device: str) -> None:
    def tangent(where: str) -> Any:
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(X.to(where), torch.ones(3, 4).to(where))
            return torch.autograd.forward_ad.unpack_dual(network(W.to(where), dual)).tangent

    agree(tangent, device)


# Modes


def test_anomaly_mode_names_the_forward_line(device: str) -> None:
    x = leaf(torch.zeros(2), device)
    with (
        torch.autograd.set_detect_anomaly(True),
        pytest.warns(UserWarning, match="Traceback of forward call"),
        pytest.raises(RuntimeError, match="returned nan values"),
    ):
        (x.sqrt() * 0).sum().backward()


def test_anomaly_mode_lets_good_gradients_through(device: str) -> None:
    x = leaf(X, device)
    with torch.autograd.detect_anomaly(check_nan=True):
        (x * x).sum().backward()
    same(x.grad, 2 * X)


def test_no_grad_and_inference_mode(device: str) -> None:
    x = leaf(X, device)
    with torch.no_grad():
        assert not (x * 2).requires_grad
        x.mul_(2)
    with torch.inference_mode():
        y = x * 2
        y[0].add_(1)
    assert y.is_inference()
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        (leaf(X, device) * y).sum().backward()


def test_gradients_cross_devices(device: str) -> None:
    x = leaf(X, "cpu")
    (x.to(device) * 2).cpu().pow(2).sum().backward()
    assert x.grad is not None
    assert x.grad.device.type == "cpu"
    same(x.grad, 8 * X)
