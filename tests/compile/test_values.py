"""Compiled functions and modules give the values, gradients and results that they give on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.compile.compare import agree, compiled, moved, pull, randn, same

BACKWARD: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "elementwise": (lambda x: (x.sin() * 2 + 1).relu(), (randn(3, 4),)),
    "matmul": (lambda x, w: x @ w, (randn(3, 4), randn(4, 2))),
    "einsum": (lambda x, y: torch.einsum("bij,bjk->bik", x, y), (randn(2, 3, 4), randn(2, 4, 5))),
    "reductions": (lambda x: (x.mean(), x.var(1), x.amax(0)), (randn(3, 4),)),
    "softmax": (lambda x: (x.softmax(-1), x.log_softmax(0)), (randn(3, 4),)),
    "cross entropy": (lambda x, t: F.cross_entropy(x, t), (randn(4, 5), torch.tensor([0, 1, -100, 4]))),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (randn(1, 2, 5, 4),)),
    "convolution": (lambda x, w: F.conv2d(x, w, padding=1), (randn(2, 3, 5, 5), randn(4, 3, 3, 3))),
    "indices": (lambda x: (x[1], x[:, ::2], x[torch.tensor([2, 0], device=x.device)]), (randn(3, 4),)),
    "in place": (lambda x: (x * 2).mul_(3).add_(x), (randn(3, 4),)),
    "views": (lambda x: [a * 2 for a in x.t().split(2)], (randn(3, 4),)),
    "sort": (lambda x: (x.sort(-1)[0], x.topk(2)[0]), (randn(3, 5),)),
    "float64": (lambda x: (x @ x.t()).tanh(), (randn(3, 3, dtype=torch.float64),)),
    "factorizations": (
        lambda x: (torch.linalg.inv(x), torch.linalg.cholesky(x @ x.mT + torch.eye(3, device=x.device))),
        (randn(3, 3, dtype=torch.float64),),
    ),
    "complex": (lambda x: (torch.view_as_complex(x) * (1 + 2j)).abs(), (randn(3, 2),)),
    "no elements": (lambda x: (x * 2, x.sum()), (randn(0, 3),)),
    "no dimensions": (lambda x: (x * x, x[None]), (torch.tensor(2.0),)),
    "no_grad inside": (lambda x: torch.no_grad()(lambda: x * 2)() + x, (randn(3),)),
    "detached": (lambda x: (x.detach() * x, x.detach()), (randn(3),)),
}
FORWARD: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "int64": (lambda x: (x // 2, x % 3, x**2, x.sum(), x.float()), (torch.arange(-5, 5),)),
    "uint8": (lambda x: (x + 250, x >> 1, x.sum()), (torch.arange(10, dtype=torch.uint8),)),
    "int16": (lambda x: (x * 30000, x.to(torch.int8)), (torch.arange(10, dtype=torch.int16),)),
    "uint32": (lambda x: x.to(torch.int64) + 1, (torch.arange(4).to(torch.uint32),)),
    "bool": (lambda x: (~x, x & x.flip(0), x.any(), x.sum()), (torch.tensor([True, False, True]),)),
    "bfloat16": (lambda x: (x + 1, x.softmax(-1)), (randn(5).bfloat16(),)),
    "float16": (lambda x: (x + 1, x.exp()), (randn(5).half(),)),
    "float8": (lambda x: x.to(torch.float8_e4m3fn).to(torch.float32), (randn(5),)),
    "complex64": (lambda x: (x * x, x.abs(), x.conj() * 2, x.sum()), (randn(3, dtype=torch.complex64),)),
    "dtype views": (lambda x: (x.view(torch.int32), (x * 2).view(torch.int16)), (randn(3),)),
    "conversions": (lambda x: (x.half(), x.double(), x.int(), x.bool()), (randn(3),)),
    "creation": (
        lambda x: (torch.arange(3, device=x.device) + x, x.new_full((2,), 3), torch.eye(2).to(x)),
        (randn(3),),
    ),
    "nested results": (lambda x: {"a": [x + 1, (x * 2, None)], "b": 3, "c": "text"}, (randn(3),)),
    "no tensor result": (lambda x: 5, (randn(3),)),
    "nested arguments": (lambda d, n: [d["x"] + n, d["y"][0] * n], ({"x": randn(3), "y": [randn(2)]}, 2.5)),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_gradients(name: str) -> None:
    fn, args = BACKWARD[name]
    agree(fn, *args, backward=True, tolerance=1e-12 if name == "factorizations" else None)


@pytest.mark.parametrize("name", FORWARD)
def test_forward(name: str) -> None:
    fn, args = FORWARD[name]
    agree(fn, *args)


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2)), (randn(3, 4),)),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        (randn(2, 3, 6, 6),),
    ),
    "lstm": (lambda: nn.LSTM(3, 4, 2, batch_first=True), (randn(2, 5, 3),)),
    "gru": (lambda: nn.GRU(3, 4, bidirectional=True), (randn(5, 2, 3),)),
    "rnn": (lambda: nn.RNN(3, 4), (randn(5, 2, 3),)),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), (randn(2, 5, 8),)),
    "embedding": (lambda: nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2)), (torch.randint(0, 10, (2, 3)),)),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str, seed: int) -> None:
    make, args = MODULES[name]
    here = make()
    there = make().to("tpu")
    there.load_state_dict(here.state_dict())
    expected, actual = here(*args), compiled(there)(*moved(args, "tpu"))
    pull(expected), pull(actual)
    same(actual, expected, 3e-6)
    for kind in ("parameters", "buffers"):
        theirs, ours = dict(getattr(here, f"named_{kind}")()), dict(getattr(there, f"named_{kind}")())
        assert theirs.keys() == ours.keys()
        same([p.grad for p in ours.values()], [p.grad for p in theirs.values()], 5e-6)
        same(list(ours.values()), list(theirs.values()), 3e-6)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_grad_modes(mode: Callable[[], Any]) -> None:
    x = randn(3, requires_grad=True)
    there = moved(x, "tpu")
    fn = compiled(lambda x: x * 2)
    with mode():
        result = fn(there)
        expected = x * 2
    assert result.is_inference() == expected.is_inference()
    same(result, expected)


def test_the_mode_may_change_between_calls() -> None:
    x = randn(3).to("tpu").requires_grad_()
    fn = compiled(torch.sin)
    with torch.no_grad():
        assert not fn(x).requires_grad
    fn(x).sum().backward()
    assert x.grad is not None
    same(x.grad, x.detach().cpu().cos())


def test_a_graph_break_between_two_graphs() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        return y.sin()

    agree(fn, randn(3), backward=True)


def test_what_python_must_know_breaks_the_graph() -> None:
    agree(lambda x: x[x > 0] * 2 if x.sum().item() > 0 else x, torch.tensor([1.0, -0.5, 2.0]), fallback=True)


def test_gradients_accumulate_over_calls() -> None:
    x = randn(3).to("tpu").requires_grad_()
    fn = compiled(lambda x: (x**2).sum())
    for _ in range(3):
        fn(x).backward()
    assert x.grad is not None
    same(x.grad, 6 * x.detach().cpu())


def test_one_program_for_all_values_of_a_number() -> None:
    fn, x = compiled(lambda x, n: x * n + 0.123), torch.ones(3, device="tpu")
    fn(x, 1.5), fn(x, 2.5)
    before = torch.tpu.cache.stats()["requests"]
    assert fn(x, 3.5).cpu().tolist() == pytest.approx([3.623] * 3)
    assert torch.tpu.cache.stats()["requests"] == before


def test_constants_that_python_holds_equal_are_not() -> None:
    """0.0 and -0.0; each call is remembered by its arguments."""
    x = torch.ones(2)
    fn = lambda x: (F.pad(x, (1, 1), value=0.0), F.pad(x, (1, 1), value=-0.0))  # noqa: E731
    for actual, expected in zip(compiled(fn)(x.to("tpu")), fn(x)):
        assert torch.signbit(actual).cpu().tolist() == torch.signbit(expected).tolist()


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_cross_entropy_in_chunks(reduction: str) -> None:
    """An op that PyTorch writes in Python, with buffers that each chunk overwrites."""
    target = torch.tensor([0, 3, 1, 2, 3])

    def fn(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        options = nn.LinearCrossEntropyOptions(batch_chunk_size=2, allow_retain_graph=True)
        loss: torch.Tensor = nn.functional.linear_cross_entropy(
            x, w, target.to(x.device), reduction=reduction, linear_bias=b, options=options
        )
        return loss

    agree(fn, randn(5, 3), randn(4, 3), randn(4), backward=True, fullgraph=True)
