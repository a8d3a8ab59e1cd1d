"""Sizes that vary: right values and gradients for every size, from a few padded programs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.compile.compare import compiled, moved, pull, randn, same
from torus.backend.compile.errors import CompileWarning

SIZES = (5, 9, 3, 17, 30)
Case = tuple[Callable[..., Any], Callable[[int], tuple[torch.Tensor, ...]]]


def rows(n: int) -> tuple[torch.Tensor, ...]:
    return (randn(n, 4),)


def below(limit: int, *sizes: int) -> torch.Tensor:
    return torch.arange(torch.Size(sizes).numel()).mul(7).remainder(limit).reshape(sizes)


def _block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Attention with two heads, causal."""
    q, k, v = (x @ w).view(x.shape[0], x.shape[1], 3, 2, 4).permute(2, 0, 3, 1, 4)
    attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return F.layer_norm(x + attended.transpose(1, 2).reshape(x.shape), (8,))


def _conv(x: torch.Tensor, w: torch.Tensor, g: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.relu(F.batch_norm(F.conv2d(x, w), None, None, g, b, training=True))


def _masked_scores(x: torch.Tensor) -> torch.Tensor:
    hidden = torch.ones(x.shape[0], x.shape[0], dtype=torch.bool, device=x.device).triu(1)
    return (x @ x.t()).masked_fill(hidden, -torch.inf).softmax(-1)


CASES: dict[str, Case] = {
    "elementwise": (lambda x: (x * 2 + 1).sin().relu(), rows),
    "sums": (lambda x: (x.mean(), x.mean(0), x.sum(1), x.view(-1).sum()), rows),
    "extremes": (lambda x: (x.amax(0), x.amin(0), x.max(0)[0], x.logsumexp(0), x.norm()), rows),
    "var": (lambda x: (x.var(0), x.std(), x.var(1, keepdim=True)), rows),
    "products": (lambda x: (x.prod(0), x.cumsum(0)), rows),
    "softmax": (lambda x: (x.softmax(0), x.log_softmax(0), x.softmax(1)), rows),
    "layer_norm": (lambda x, w: F.layer_norm(x, (4,), w), lambda n: (randn(2, n, 4), randn(4))),
    "rms_norm": (lambda x, w: F.rms_norm(x, (4,), w), lambda n: (randn(2, n, 4), randn(4))),
    "matmul": (lambda x, w: (x @ w, x @ x.t(), x.t() @ x), lambda n: (randn(n, 4), randn(4, 3))),
    "contraction": (lambda x, y: x @ y, lambda n: (randn(3, n), randn(n, 4))),
    "linear": (F.linear, lambda n: (randn(2, n, 4), randn(3, 4), randn(3))),
    "attention block": (_block, lambda n: (randn(2, n, 8), randn(8, 24))),
    "attention mask": (
        lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m),
        lambda n: (randn(2, 2, n, 4), randn(2, 1, 1, n)),
    ),
    "masked scores": (_masked_scores, rows),
    "embedding": (F.embedding, lambda n: (below(7, 2, n), randn(7, 3))),
    "cat": (lambda x, y: (torch.cat([x, y]), torch.cat([x, y, x], 1)), lambda n: (randn(n, 4), randn(n, 4))),
    "cat with constants": (lambda x, y: torch.cat([y, x, y]) * 2, lambda n: (randn(n, 4), randn(1, 4))),
    "stack": (lambda x, y: torch.stack([x, y], 1).sum(1), lambda n: (randn(n, 4), randn(n, 4))),
    "slices": (lambda x: (x[-1], x[:, -1:], x[0], x[1:] * 1, x[:-1] * 2, x[-2:] * 3), lambda n: (randn(n, n + 1),)),
    "gather": (lambda x, i: (x.gather(1, i), x[i[:, 0]]), lambda n: (randn(n, 4), below(3, n, 2))),
    "scatter_add": (lambda x, i, s: x.scatter_add(0, i, s), lambda n: (randn(3, 4), below(3, n, 4), randn(n, 4))),
    "index_add": (lambda x, i, s: x.index_add(0, i, s), lambda n: (randn(3, 4), below(3, n), randn(n, 4))),
    "negative indices": (lambda x, i: x[i - x.shape[0]], lambda n: (randn(n, 4), below(n, n + 2))),
    "clamp by tensors": (torch.clamp, lambda n: (randn(n, 4), -randn(4).abs(), randn(n, 4).abs())),
    "cross entropy": (lambda x, t: F.cross_entropy(x, t, ignore_index=1), lambda n: (randn(n, 4), below(4, n))),
    "mean square": (F.mse_loss, lambda n: (randn(n, 4), randn(n, 4))),
    "conv and batch norm": (_conv, lambda n: (randn(n, 3, 5, 5), randn(4, 3, 3, 3), randn(4), randn(4))),
    "max_pool": (lambda x: F.max_pool2d(x, 2), lambda n: (randn(n, 2, 4, 4),)),
    "views": (lambda x: (x.view(-1) * 1, x.reshape(-1, 2) * 2, x.view(-1, 2, 2).transpose(1, 2) * 3), rows),
    "merged sizes": (lambda x: (x.reshape(-1, 4) * 2).sum(0), lambda n: (randn(n, n + 1, 4),)),
    "sizes as numbers": (lambda x: x * x.shape[0] / (x.shape[0] + 1) + x.shape[0] ** 2, rows),
    "positions": (lambda x: x + torch.arange(x.shape[0], device=x.device)[:, None], rows),
    "new tensors": (lambda x: torch.zeros(x.shape[0], 4, device=x.device) + x + x.new_ones(x.shape[0], 1), rows),
    "two sizes": (lambda x, y: (x[:, None] - y).square().sum(-1), lambda n: (randn(n, 4), randn(n + 3, 4))),
    "repeat": (lambda x: (x.repeat(2, 1), x.repeat(2, 1, 2), x[0].repeat(x.shape[0], 1)), rows),
    "halves": (lambda x: x[: (x.shape[0] + 1) // 2] * 2, rows),
    "flip": (lambda x: (x.flip(0), x.flip(0, 1), x.flip(1)), rows),
    "topk": (lambda x: (x.topk(2, 0)[0], x.topk(2, 0, largest=False)[0], x.max(0)[1]), rows),
    "sort": (lambda x: (x.sort(0)[0], x.sort(0, descending=True)[1], x[:, 0].argsort()), rows),
    "padding": (lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, 1, 2, 1), value=3.0).sum(0), F.pad(x, (0, 0, -1, 1))), rows),
    "conv over places": (
        lambda x, w, b: F.conv_transpose1d(F.conv1d(x, w, b, 2, 1).cos(), w, stride=2).sum(-1),
        lambda n: (randn(2, 3, n), randn(4, 3, 3), randn(4)),
    ),
}
SLOW = {
    "topk",
    "sort",
    "conv over places",
    "attention block",
    "attention mask",
    "conv and batch norm",
    "softmax",
    "views",
    "cross entropy",
    "slices",
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else []) for n in CASES])
def test_every_size(name: str) -> None:
    fn, make = CASES[name]
    fast = compiled(fn, dynamic=True)
    for n in SIZES:
        args = [x.double() if x.is_floating_point() else x for x in make(n)]
        here, there = moved(args, "cpu"), moved(args, "tpu")
        for x in (*here, *there):
            x.requires_grad_(x.is_floating_point())
        expected = fn(*here)
        with warnings.catch_warnings():
            warnings.simplefilter("error", CompileWarning)
            actual = fast(*there)
            pull(actual)
        pull(expected)
        same(actual, expected, 1e-12, strides=False)
        same([x.grad for x in there], [x.grad for x in here], 1e-12, strides=False)


@pytest.mark.parametrize("name", ["elementwise", "sums", "softmax", "attention block"])
def test_a_size_that_was_announced(name: str) -> None:
    fn, make = CASES[name]
    fast, dim = compiled(fn), 1 if name == "attention block" else 0
    for n in (5, 30, 2):
        args = make(n)
        there = moved(args, "tpu")
        torch._dynamo.mark_dynamic(there[0], dim, min=2, max=40)
        same(fast(*there), fn(*args), strides=False)


@pytest.mark.filterwarnings("ignore:a graph with dynamic sizes is compiled for each size")
@pytest.mark.parametrize("name", ["median", "max_pool1d"])
def test_what_cannot_be_padded_is_right_for_each_size(name: str) -> None:
    fn: Callable[..., Any] = {
        "median": lambda x: x.median(0)[0],
        "max_pool1d": lambda x: F.max_pool1d(x.t(), 2),
    }[name]
    fast = compiled(fn, dynamic=True)
    for n in SIZES:
        x, y = (randn(n, 4).to(device).requires_grad_() for device in ("cpu", "tpu"))
        with torch.no_grad():
            y.copy_(x)
        expected, actual = fn(x), fast(y)
        pull(expected), pull(actual)
        same([actual, y.grad], [expected, x.grad], strides=False)


def test_padding_sorts_behind_everything() -> None:
    nan, inf, fn = torch.nan, torch.inf, lambda x, d: x.sort(0, descending=d)
    fast = compiled(fn, dynamic=True)
    for values in ([1.0, nan, inf, -inf, nan], [nan, -inf, 2.0, inf, -inf, nan, 0.0], [inf, -inf, nan]):
        for descending in (False, True):
            x = torch.tensor(values)
            same(list(fast(x.to("tpu"), descending)), list(x.sort(stable=True, dim=0, descending=descending)))


def test_what_cannot_be_padded_warns() -> None:
    fast = compiled(lambda x: x.median(0)[0], dynamic=True)
    with pytest.warns(CompileWarning, match=r"compiled for each size.*median") as caught:
        for n in (5, 9, 7):
            same(fast(torch.ones(n, 2, device="tpu")), torch.ones(2))
    assert sum(issubclass(w.category, CompileWarning) for w in caught) == 1


@pytest.mark.parametrize(
    "fn",
    [lambda x: x.chunk(2, 1)[0], lambda x: x.chunk(2)[1], lambda x: x[1:].t(), lambda x: (x[2:], x * 2)],
    ids=["left half", "last rows", "transposed rows", "beside a new tensor"],
)
def test_views_of_arguments_are_views_at_every_size(fn: Callable[..., Any]) -> None:
    """AOTAutograd takes sizes, strides and offset of such a view from what the program returns."""
    fast = compiled(fn, dynamic=True)
    for n in (5, 9, 30):
        x = randn(n, 3)
        there = moved(x, "tpu")
        same(fast(there), fn(x))


def test_as_many_values_as_a_mask_says() -> None:
    """A size that the data decide: the graph breaks there, and what follows takes every count."""
    fn = lambda x, mask: x[mask].relu().sum()  # noqa: E731
    fast = compiled(fn, fallback=True)
    x = randn(32)
    for count in (3, 7, 9, 15, 20, 0):
        mask = torch.arange(32) < count
        same(fast(*moved((x, mask), "tpu")), fn(x, mask))
