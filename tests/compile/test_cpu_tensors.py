"""CPU tensors in graphs of the device: what is made of them alone stays on the CPU, the rest is sent or fetched."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.compile.compare import compiled, randn, same
from torus.backend.compile.errors import CompileWarning

X = randn(4, 5)
FIVE = torch.arange(5.0)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a number": (lambda x, c: x * c, (torch.tensor(2.5),)),
    "a number as a result too": (lambda x, c: (x * c, c + 1), (torch.tensor(2.5),)),
    "sent": (lambda x, c: x * c.to(x.device), (FIVE,)),
    "computed with, then sent": (lambda x, c: x + c[1:].flip(0).to(x.device).sum(), (FIVE,)),
    "a stepped view": (lambda x, c: x * c.to(x.device), (torch.arange(40.0).view(8, 5)[1::2],)),
    "a transposed view": (lambda x, c: x * c.to(x.device), (torch.arange(20.0).view(5, 4).t(),)),
    "an expanded view": (lambda x, c: x * c.to(x.device), (FIVE.expand(4, 5),)),
    "the end of a tensor": (lambda x, c: x * c.to(x.device), (torch.arange(25.0)[20:],)),
    "indices": (lambda x, c: x[:, c], (torch.tensor([0, 3]),)),
    "unused": (lambda x, c: x + 1, (FIVE,)),
    "given back": (lambda x, c: (x + 1, c, c.view(5, 1)), (FIVE,)),
    "written": (lambda x, c: (c.add_(1), x * c.sum())[1], (torch.ones(3),)),
    "written from the device": (lambda x, c: (c.copy_(x.sum(0)), x * 2)[1], (torch.ones(5),)),
    "made inside": (lambda x, c: x * torch.tensor([1.0, 2, 3, 4, 5]).to(x.device) + torch.tensor(3.0), (FIVE,)),
    "indices made inside": (lambda x, c: x[torch.tensor([0, 2])], (FIVE,)),
    "offsets made inside": (lambda x, c: (x[:, torch.cumsum(torch.tensor([2, 3]), 0)[0] - 1], c), (FIVE,)),
    "fetched": (lambda x, c: ((x * 2).cpu() + 1, x + 1), (FIVE,)),
    "fetched and converted": (lambda x, c: x.to("cpu", torch.float64), (FIVE,)),
    "fetched and sent again": (
        lambda x, c: ((x * 2).cpu() + c).to("tpu" if x.device.type == "tpu" else "cpu"),
        (FIVE,),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_cpu_tensors(name: str) -> None:
    fn, args = CASES[name]
    here, there = (
        [a.clone() if a.is_contiguous() else a for a in args],
        [a.clone() if a.is_contiguous() else a for a in args],
    )
    expected, actual = fn(X.to("tpu"), *here), compiled(fn)(X.to("tpu"), *there)
    same(actual, expected)
    same(there, here)
    devices = [[t.device for t in torch.utils._pytree.tree_leaves(side)] for side in (actual, expected)]
    assert devices[0] == devices[1]


def test_layer_offsets_as_attribution_libraries_make_them() -> None:
    """`LayerIntegratedGradients` cuts a tensor at a running sum of sizes that are on the CPU."""

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        offsets = torch.cumsum(torch.tensor([1, 2, 2]), 0)
        return list(torch.tensor_split(x, offsets[:-1], dim=1))

    same(compiled(fn, fallback=True)(X.to("tpu")), fn(X), strides=False)


def test_gradients_of_cpu_tensors_are_on_the_cpu() -> None:
    for c, fn in (
        (torch.ones(5), lambda x, c: (x * c.to("tpu")).sum()),
        (torch.tensor(2.0), lambda x, c: (x * c).sum()),
    ):
        c.requires_grad_()
        compiled(fn)(X.to("tpu"), c).backward()
        assert c.grad is not None
        assert c.grad.device.type == "cpu"
        same(c.grad, X.sum(0) if c.dim() else X.sum())


def test_a_graph_of_cpu_tensors_alone_runs_on_the_cpu() -> None:
    before = torch.tpu.counters()
    x = torch.ones(3, requires_grad=True)
    compiled(lambda x: (x * x).sum())(x).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]
    assert torch.tpu.counters() == before


def test_a_large_cpu_tensor_warns_once() -> None:
    large, x = torch.ones(1 << 19), torch.ones(1, device="tpu")
    fn = compiled(lambda x, c: x * c.to(x.device))
    with pytest.warns(CompileWarning, match="takes a CPU tensor of 2 MiB"):
        fn(x, large)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fn(x, large).sum().item() == 1 << 19


def test_a_small_cpu_tensor_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileWarning)
        compiled(lambda x, c: x * c.to(x.device))(torch.ones(1, device="tpu"), torch.ones(100))


def test_new_values_of_a_cpu_number_compile_nothing() -> None:
    fn, x = compiled(lambda x, c: x * c), torch.ones(3, device="tpu")
    fn(x, torch.tensor(1.0))
    before = torch.tpu.cache.stats()["requests"]
    assert fn(x, torch.tensor(7.0)).cpu().tolist() == [7, 7, 7]
    assert torch.tpu.cache.stats()["requests"] == before
