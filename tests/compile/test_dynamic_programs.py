"""How many programs sizes that vary take, and which."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tests.compile.compare import compiled, moved, randn, same
from torus.backend.compile.dynamic.buckets import Buckets
from torus.backend.compile.symbols import find

SIZES = (5, 9, 3, 17, 30)


def requests() -> int:
    """Programs that this process has asked for, compiled or not."""
    count: int = torch.tpu.cache.stats()["requests"]
    return count


def inputs(*sizes: int, grad: bool = False) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """A tensor for each size, on the CPU and on the device."""
    for n in sizes:
        x = randn(n, 4)
        yield x, moved(x, "tpu").requires_grad_(grad)


def test_five_sizes_are_at_most_three_programs() -> None:
    fn: Callable[..., Any] = lambda x: (x.sin() @ x.t()).softmax(-1).sum(0)  # noqa: E731
    fast, pairs = compiled(fn, dynamic=True), list(inputs(*SIZES))
    before = requests()
    results = [fast(there) for _, there in pairs]
    assert requests() - before <= 3
    for (x, _), result in zip(pairs, results):
        same(result, fn(x), strides=False)


def test_forward_and_backward_are_at_most_three_programs_each() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to("tpu")
    fast, pairs = compiled(lambda x: model(x).square().mean(), dynamic=True), list(inputs(*SIZES, grad=True))
    before = requests()
    losses = [fast(there) for _, there in pairs]
    assert requests() - before <= 3
    one = torch.ones((), device="tpu")
    before = requests()
    for loss in losses:
        torch.autograd.grad(loss, list(model.parameters()), one)
    assert requests() - before <= 3


def test_an_announced_size_is_one_bucket_less() -> None:
    fast, pairs = compiled(lambda x: x.sin().sum(0), num_dynamic_buckets=1), list(inputs(*SIZES))
    before = requests()
    for _, there in pairs:
        torch._dynamo.mark_dynamic(there, 0, min=2, max=32)
        fast(there)
    assert requests() - before == 1


def test_a_second_size_makes_a_size_dynamic() -> None:
    fast, pairs = compiled(lambda x: x.sin().sum(0)), list(inputs(5, 6, 7, 8, 9, 10))
    before = requests()
    for x, there in pairs:
        same(fast(there), x.sin().sum(0))
    assert requests() - before <= 3


def test_the_same_sizes_again_ask_for_nothing() -> None:
    fast, pairs = compiled(lambda x: x.cos().sum(0), dynamic=True), list(inputs(*SIZES))
    for _, there in pairs:
        fast(there)
    before = requests()
    for x, there in pairs:
        same(fast(there), x.cos().sum(0))
    assert requests() == before


def test_bucket_sizes_are_multiples_of_a_step() -> None:
    buckets = Buckets(5, step=10)
    assert [buckets.choose(n) for n in (3, 12, 200, 11)] == [10, 20, 200, 20]


@pytest.mark.parametrize("sizes", [(3, 5, 9), (100, 1), (1, 100, 1000, 10), (7,)])
@pytest.mark.parametrize("limit", [None, 1000])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_buckets_hold_what_is_asked_for(sizes: tuple[int, ...], limit: int | None, most: int) -> None:
    buckets = Buckets(most, limit=limit)
    for n in sizes:
        assert buckets.choose(n) >= n
        assert buckets.choose(n) == buckets.choose(n)
    if limit is not None:
        assert len(buckets.sizes) <= most
        assert max(buckets.sizes) <= limit


def test_padding_does_not_reach_the_results() -> None:
    fast = compiled(lambda x: 1 / x, dynamic=True)
    for x, there in inputs(*SIZES):
        result = fast(there)
        assert torch.isfinite(result.cpu()).all()
        same(result.sum(), (1 / x).sum(), 1e-5)


def test_a_size_is_found_in_what_it_is_a_part_of() -> None:
    import sympy
    from torch.utils._sympy.functions import FloorDiv

    n = sympy.Symbol("n", integer=True, positive=True)
    assert find(n, [(2 * n + 1, 11)]) == 5
    assert find(n, [(3 * (n + 1), 12)]) == 3
    half = FloorDiv(n, 2)
    assert find(n, [(half, 3), (n - half, 4)]) == 7
    assert find(n, [(half, 3)]) is None
    assert find(n, []) is None


def test_results_have_no_gaps_in_memory(device: str) -> None:
    """Also where the padded ones have: users call view() on them."""
    product = torch.compile(lambda x: x @ x.mT, backend="tpu", dynamic=True)
    for size in (5, 9, 12):
        x = torch.randn(2, size, 4)
        result = product(x.to(device))
        assert result.is_contiguous()
        torch.testing.assert_close(result.view(-1).cpu(), (x @ x.mT).view(-1))


ARITHMETIC: dict[str, Callable[[Any], Any]] = {
    "sums and products": lambda n: 3 * n * (n + 2) - n,
    "quotients": lambda n: (n + 1) // 2 + n % 3,
    "powers": lambda n: n**3 + n**2,
    "true quotients": lambda n: n / 7 + 1.5,
    "roots": lambda n: 1 / n**0.5 + math.sqrt(n),
    "rounded": lambda n: math.ceil(n / 4) + math.floor(n / 3) + int(n * 1.5) + round(n / 2),
    "extremes": lambda n: max(n, 8) + min(n, 20),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_on_sizes(name: str) -> None:
    """A number that is computed from a padded size is that of the real size, in one program for several."""
    fn: Callable[..., Any] = lambda x: x * ARITHMETIC[name](x.shape[0])  # noqa: E731
    fast = compiled(fn, dynamic=True, num_dynamic_buckets=1)
    before = requests()
    for n in (5, 9, 11, 14):
        x = torch.ones(n, dtype=torch.float64)
        same(fast(x.to("tpu")), fn(x))
    assert requests() - before <= 3
