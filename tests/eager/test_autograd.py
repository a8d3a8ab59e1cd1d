"""Autograd through the device: gradients, hooks, checkpoints, functional transforms, threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.device.process import run

X = torch.linspace(-2.0, 2.0, 12).reshape(3, 4)
W = torch.linspace(-1.0, 1.5, 20).reshape(5, 4)


def leaf(values: torch.Tensor, device: str) -> torch.Tensor:
    return values.detach().clone().to(device).requires_grad_()


def same(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, check_device=False, rtol=1e-5, atol=1e-6)


def agree(compute: Callable[[str], Any], device: str) -> None:
    """`compute` gives the same values on both devices."""
    same(compute(device), compute("cpu"))


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


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        raise Refused("no")


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


# Processes and threads


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


def _in_threads(work: Callable[[int], None], count: int) -> None:
    errors: list[BaseException] = []

    def guarded(index: int) -> None:
        try:
            work(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


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

    _in_threads(train, 4)
    for index, w in results.items():
        same(w, expected(index))


def test_threads_accumulate_into_one_leaf(device: str) -> None:
    x = leaf(X, device)
    _in_threads(lambda _: [(x * 2).sum().backward() for _ in range(10)] and None, 4)
    same(x.grad, torch.full((3, 4), 80.0))


def test_backward_of_one_graph_from_two_threads(device: str) -> None:
    x = leaf(X, device)
    shared = (x * x).exp()
    _in_threads(lambda i: (shared * (i + 1)).sum().backward(retain_graph=True), 2)
    y = leaf(X, "cpu")
    ((y * y).exp() * 3).sum().backward()
    same(x.grad, y.grad)
