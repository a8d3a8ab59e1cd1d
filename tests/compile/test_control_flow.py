"""Operators that take graphs: branches, loops, scans, maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops import associative_scan, cond, scan, while_loop
from torch._higher_order_ops.map import map as map_over

from tests.compile.compare import agree, compiled, randn

Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


def _branch(x: torch.Tensor) -> Any:
    return cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos() * 2, (x,))


def _nested(x: torch.Tensor) -> Any:
    def inner(a: torch.Tensor) -> Any:
        return cond(a[0] > 0, lambda b: b + 1, lambda b: b - 1, (a,))

    return cond(x.sum() > 0, inner, lambda a: a * 2, (x,))


def _power(x: torch.Tensor) -> Any:
    start = torch.tensor(0, device=x.device)
    return while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, a * 1.5), (start, x))


def _running(x: torch.Tensor, **options: Any) -> Any:
    first = x.select(options.get("dim", 0), 0) * 0
    return scan(lambda total, a: (total + a, total * a), first, x, **options)


def _prefixes(x: torch.Tensor, dim: int = 0, reverse: bool = False) -> Any:
    return associative_scan(lambda a, b: a * b, x, dim, reverse=reverse, combine_mode="generic")


FORWARD: dict[str, Case] = {
    "cond, true": (_branch, (randn(3).abs(),)),
    "cond, false": (_branch, (-randn(3).abs(),)),
    "cond with closure": (lambda x, y: cond(x[0] > 0, lambda a: a + y, lambda a: a - y, (x,)), (randn(3), randn(3))),
    "cond in cond": (_nested, (randn(3).abs(),)),
    "while_loop": (_power, (randn(3),)),
    "while_loop, no turn": (
        lambda x: while_loop(lambda a: a.sum() > 100, lambda a: (a * 2,), (x,)),
        (randn(3),),
    ),
    "while_loop over a number": (
        lambda x: while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, a * 1.5), (0, x))[1],
        (randn(3),),
    ),
    "scan": (_running, (randn(4, 3),)),
    "scan from the end": (lambda x: _running(x, reverse=True), (randn(4, 3),)),
    "scan along the second dimension": (lambda x: _running(x, dim=1), (randn(4, 3),)),
    "associative_scan": (_prefixes, (randn(5, 3),)),
    "associative_scan from the end": (lambda x: _prefixes(x, 1, True), (randn(5, 3),)),
    "map": (lambda x, y: map_over(lambda a, b: a.sin() * b, x, y), (randn(5, 3), randn(3))),
}


@pytest.mark.parametrize("name", FORWARD)
def test_forward(name: str) -> None:
    fn, args = FORWARD[name]
    agree(fn, *args, fullgraph=True, strides=False)


@pytest.mark.parametrize("name", ["cond, true", "cond, false", "cond in cond", "scan", "associative_scan", "map"])
def test_gradients(name: str) -> None:
    fn, args = FORWARD[name]
    agree(fn, *args, backward=True, fullgraph=True, strides=False)


def test_both_branches_are_one_program() -> None:
    fn, negative = compiled(_branch), torch.full((3,), -1.0).to("tpu")
    fn(torch.ones(3, device="tpu"))
    before = torch.tpu.cache.stats()["requests"]
    result = fn(negative)
    assert torch.tpu.cache.stats()["requests"] == before
    assert torch.allclose(result.cpu(), 2 * torch.cos(torch.ones(3)))


@pytest.mark.filterwarnings("ignore:a graph runs op by op")
def test_a_number_that_a_loop_gives_back() -> None:
    agree(
        lambda x: while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, a * 1.5), (0, x)),
        randn(3),
        fallback=True,
    )
