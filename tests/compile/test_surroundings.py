"""Compiled functions among the rest of PyTorch: threads, hooks, transforms, copies, state dicts, the fusing mode."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.compile.compare import agree, compiled, moved, pull, randn, same
from tests.eager.fusing import running

X = randn(4, 5)
TRANSFORMS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "grad": (torch.func.grad(lambda a: (a**3).sum()), (randn(3),)),
    "vmap": (torch.vmap(torch.dot), (randn(3, 4), randn(3, 4))),
    "vmap of grad": (torch.vmap(torch.func.grad(lambda a: (a**3).sum())), (randn(3, 2),)),
    "jacrev": (torch.func.jacrev(lambda a: a**2), (randn(3),)),
    "jvp": (lambda x: torch.func.jvp(torch.sin, (x,), (x * 2,)), (randn(3),)),
    "hessian": (torch.func.hessian(lambda a: (a**3).sum()), (randn(3),)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_function_transforms_inside(name: str) -> None:
    fn, args = TRANSFORMS[name]
    agree(lambda *a: fn(*a), *args, strides=False)


def test_gradients_taken_inside() -> None:
    agree(lambda x: torch.autograd.grad((x**3).sum(), x)[0], randn(3, requires_grad=True), fallback=True)


def test_second_derivatives_are_refused() -> None:
    x = torch.ones(3, device="tpu", requires_grad=True)
    (first,) = torch.autograd.grad(compiled(lambda x: (x**3).sum())(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        first.sum().backward()


def test_hooks_of_tensors_inside_and_outside() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.register_hook(lambda g: g * 3)
        return y.sin()

    here = randn(3).requires_grad_()
    there = moved(here, "tpu")
    for x, run in ((here, fn), (there, compiled(fn, fallback=True))):
        x.register_hook(lambda g: g + 1)
        pull(run(x))
    same(there.grad, here.grad)


def test_hooks_of_modules() -> None:
    model = nn.Linear(3, 2).to("tpu")
    seen: list[torch.Size] = []
    model.register_forward_hook(lambda m, args, out: seen.append(out.shape) or out * 2)  # type: ignore[func-returns-value]
    x = torch.ones(4, 3, device="tpu")
    result = compiled(model, fallback=True)(x)
    same(result, 2 * nn.functional.linear(x, model.weight, model.bias))
    assert seen == [(4, 2)]


def test_threads_compile_and_run_at_once() -> None:
    torch._dynamo.reset()
    shared = compiled(lambda x: (x * 3).sin().sum())
    results: dict[int, Any] = {}

    def work(i: int) -> None:
        try:
            x = torch.full((3,), float(i), device="tpu", requires_grad=True)
            own = torch.compile(lambda x: (x * i).cos().sum(), backend="tpu")
            (shared(x) + own(x)).backward()
            results[i] = x.grad
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 5)]
    [t.start() for t in threads]
    [t.join(120) for t in threads]
    for i in range(1, 5):
        x = torch.full((3,), float(i), dtype=torch.float64)
        assert isinstance(results.get(i), torch.Tensor), results.get(i)
        same(results[i].double(), 3 * (3 * x).cos() - i * (i * x).sin(), 1e-5)


def test_deep_copies_are_independent() -> None:
    model = compiled(nn.Linear(3, 2).to("tpu"))
    x = torch.ones(1, 3, device="tpu")
    before = model(x).detach().cpu()
    other = copy.deepcopy(model)
    with torch.no_grad():
        next(other.parameters()).zero_()
    same(model(x).detach(), before)
    assert not torch.equal(other(x).cpu(), before)


def test_parameters_may_be_loaded_written_and_replaced() -> None:
    inner = nn.Linear(3, 2, bias=False).to("tpu")
    model, x = compiled(inner), torch.ones(1, 3, device="tpu")
    model(x)
    model.load_state_dict({name: torch.ones_like(value) for name, value in model.state_dict().items()})
    assert model(x).cpu().tolist() == [[3, 3]]
    inner.weight.data.fill_(2)
    assert model(x).cpu().tolist() == [[6, 6]]
    with torch.no_grad():
        inner.weight.mul_(2)
    assert model(x).cpu().tolist() == [[12, 12]]
    inner.weight = nn.Parameter(torch.zeros(2, 3, device="tpu"))
    assert model(x).cpu().tolist() == [[0, 0]]


def test_buffers_are_written() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x + self.count

    model = Counter().to("tpu")
    fast = compiled(model)
    assert [fast(torch.zeros(1, device="tpu")).item() for _ in range(3)] == [1, 2, 3]
    assert model.count.item() == 3


def test_evaluation_and_training_are_two_graphs() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5)).to("tpu")
    fast, x = compiled(model), randn(4, 3).to("tpu")
    fast(x)
    model.eval()
    same(fast(x).detach(), model(x).detach())
    model.train()
    assert (fast(x) == 0).any().item()


def test_device_with_and_without_an_index() -> None:
    agree(
        lambda x: x + torch.ones(5, device=torch.device(x.device.type, 0) if x.device.type == "tpu" else "cpu"),
        randn(5),
    )


def test_compiled_functions_call_each_other() -> None:
    inner = torch.compile(lambda x: x.sin(), backend="tpu")
    agree(lambda x: inner(x) * 2 if x.device.type == "tpu" else x.sin() * 2, randn(3), backward=True)


@pytest.mark.parametrize("way", ["background", "foreground", "never"])
def test_while_eager_ops_are_recorded(way: str, seed: int) -> None:
    def run(wrap: Callable[..., Any]) -> Any:
        whole = moved(X, "tpu")
        part = whole[1:3]
        part.mul_(2)  # is recorded, and must have run before the graph reads
        fn = wrap(lambda a: (a.add_(1), a[0] * 2)[1])
        first = fn(part)
        whole.mul_(3)
        second = fn(whole[1:3])
        x = (whole * 2).requires_grad_()
        loss = (wrap(lambda a: (a.sin() * a).sum(0))(x) ** 2).sum()
        loss.backward()
        torch.manual_seed(5)
        noise = torch.rand(3, device="tpu"), wrap(lambda a: a + torch.rand_like(a))(whole), torch.rand(3, device="tpu")
        return whole, first, second, loss.detach(), x.grad, noise

    expected = run(lambda fn: fn)
    with running(way):
        same(run(compiled), expected)


def test_a_hook_that_a_compiled_module_gets_later_counts() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).to("tpu")
    fast, x = compiled(model), torch.ones(2, 3, device="tpu")
    same(fast(x).detach(), model(x).detach())
    with torch.no_grad():
        model[0].register_forward_hook(lambda module, args, result: result * 0 + 7)
        assert fast(x).cpu().eq(7).all()
