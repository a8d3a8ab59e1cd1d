"""Arguments that are written, that share memory, that come back as results, and layouts of all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.compile.compare import agree, compiled, randn, same


def _through_views(x: torch.Tensor) -> torch.Tensor:
    x.t().mul_(2)
    x[0] = 5
    return x.view(-1)[::2]


CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "one result twice": (lambda x: (x + 1,) * 2, (randn(3),)),
    "an argument": (lambda x: (x, x + 1), (randn(3),)),
    "views of an argument": (lambda x: (x.t(), x[1:], x.view(-1)), (randn(3, 4),)),
    "a view alone": (lambda x: x.t(), (randn(3, 4),)),
    "a view by strides": (lambda x: x.as_strided((2, 2), (1, 2), 1), (randn(10),)),
    "views of a result": (lambda x: (y := x + 1, y[1:], y.t()), (randn(3, 4),)),
    "a written argument": (lambda x: (x.add_(1), x.t()), (randn(3, 4),)),
    "written through a view": (lambda x: x[1].mul_(2) + 1, (randn(3, 4),)),
    "written through two views": (_through_views, (randn(3, 4),)),
    "written where transposed": (lambda x: x.add_(1), (randn(3, 4).t(),)),
    "written twice": (lambda x, y: (x.add_(y), y.mul_(x), x.sub_(1)), (randn(3), randn(3))),
    "written by index, then by its own mirror": (
        lambda x, i, v: x.index_put_((i,), v).add_(x.flip(0)),
        (randn(5), torch.tensor([0, 2]), randn(2)),
    ),
    "swapped": (lambda x, y: (x.copy_(y.clone()), y.copy_(x * 2)), (randn(3), randn(3))),
    "through .data": (lambda x: (x.data.mul_(2), x + 1)[1], (randn(3),)),
    "channels_last": (
        lambda x: (torch.relu(x), x * 2, x.mean(1), x.permute(0, 2, 3, 1)),
        (randn(2, 3, 4, 5).to(memory_format=torch.channels_last),),
    ),
    "to channels_last": (lambda x: x.to(memory_format=torch.channels_last) + 1, (randn(2, 3, 4, 5),)),
    "permuted": (lambda x: (x + 1, x.contiguous()), (randn(2, 3, 4).permute(2, 0, 1),)),
    "with gaps": (lambda x: x + 1, (randn(6, 8)[1::2, ::2],)),
    "expanded": (lambda x: x * 2, (randn(3, 1).expand(3, 4),)),
}


@pytest.mark.parametrize("name", CASES)
def test_aliases_and_layouts(name: str) -> None:
    fn, args = CASES[name]
    if name == "expanded":  # a copy of it would have no repeated elements
        there = args[0].to("tpu").contiguous()[:, :1].expand(3, 4)
        same(compiled(fn)(there), fn(args[0]))
        return
    agree(fn, *args)


def test_results_that_are_the_same_tensor_are_one_object() -> None:
    x = torch.ones(3, device="tpu")
    first, second, third = compiled(lambda x: ((y := x + 1), y, x))(x)
    assert first is second
    assert third is x


def test_a_view_of_an_argument_shares_its_memory() -> None:
    x = torch.zeros(3, 4, device="tpu")
    view = compiled(lambda x: x.t()[1:])(x)
    view.fill_(1)
    assert x.sum().item() == 9
    assert view._base is x


@pytest.mark.parametrize("shift", [0, 2, 6])
def test_arguments_that_overlap(shift: int) -> None:
    def run(device: str, wrap: Callable[..., Any]) -> tuple[torch.Tensor, ...]:
        whole = torch.arange(12.0).to(device)
        return wrap(lambda x, y: (x.add_(1), y * 2)[1])(whole[:6], whole[shift : shift + 6]), whole

    same(run("tpu", compiled), run("cpu", lambda fn: fn))


def test_the_same_argument_twice() -> None:
    x = torch.ones(3, device="tpu")
    result = compiled(lambda a, b: (a.add_(1), b * 2)[1])(x, x)
    assert result.cpu().tolist() == [4, 4, 4]


def test_a_written_argument_keeps_its_storage_and_counts_the_write() -> None:
    x = torch.zeros(3, device="tpu")
    alias, version = x.detach(), x._version
    compiled(lambda x: x.add_(1))(x)
    assert alias.cpu().tolist() == [1, 1, 1]
    assert x._version > version


def test_results_do_not_share_memory_with_arguments_that_are_not_views() -> None:
    x = torch.ones(3, device="tpu")
    result = compiled(lambda x: x.clone())(x)
    result.add_(1)
    assert x.cpu().tolist() == [1, 1, 1]


def test_one_program_for_all_offsets() -> None:
    whole = torch.arange(20.0) * 1.7
    there, fn = whole.to("tpu"), compiled(lambda x: x * 2 + 0.25)
    pieces = [there[i : i + 4] for i in range(10)]
    fn(pieces[0])
    before = torch.tpu.cache.stats()["requests"]
    results = [fn(piece) for piece in pieces]
    assert torch.tpu.cache.stats()["requests"] == before
    for i, result in enumerate(results):
        same(result, whole[i : i + 4] * 2 + 0.25)


def test_writes_at_any_offset_are_one_program() -> None:
    there, fn = torch.zeros(12, device="tpu"), compiled(lambda x: x.add_(1))
    fn(there[:4])
    before = torch.tpu.cache.stats()["requests"]
    for i in range(1, 8):
        fn(there[i : i + 4])
    assert torch.tpu.cache.stats()["requests"] == before
    assert there.cpu().tolist() == [1, 2, 3, 4, 4, 4, 4, 4, 3, 2, 1, 0]


@pytest.mark.filterwarnings("ignore:a graph runs op by op")
@pytest.mark.parametrize("offset", [0, 1, 3, None])
@pytest.mark.parametrize("inside", [False, True])
def test_strides_of_a_storage_that_is_larger_than_the_argument(offset: int | None, inside: bool) -> None:
    """`as_strided` and its scatter count from the beginning of the storage."""

    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ones = torch.ones(2, 2, device=x.device)
        return x.as_strided((2, 2), (1, 2), offset), torch.as_strided_scatter(x, ones, (2, 2), (2, 1), offset)

    whole = randn(20)
    fn = (lambda x: both(x[3:13])) if inside else both
    here, there = (x if inside else x[3:13] for x in (whole, whole.to("tpu")))
    same([r.cpu() for r in compiled(fn, fallback=True)(there)], list(fn(here)))
