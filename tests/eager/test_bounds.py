"""Numbers that an op does not accept are refused at the call, also where it has a program: programs take any number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

CALLS: dict[str, tuple[Callable[[torch.Tensor, Any], Any], Any, Any]] = {
    "exponential": (lambda x, n: x.exponential_(n), 2.0, -1.0),
    "cauchy": (lambda x, n: x.cauchy_(0, n), 2.0, 0.0),
    "geometric": (lambda x, n: x.geometric_(n), 0.3, 1.0),
    "log_normal": (lambda x, n: x.log_normal_(0, n), 3.0, -1.0),
    "normal_": (lambda x, n: x.normal_(0, n), 3.0, -1.0),
    "normal around a tensor": (lambda x, n: torch.normal(x, n), 2.0, -2.0),
    "normal of numbers": (lambda x, n: torch.normal(1.0, n, (3,), device=x.device), 2.0, float("nan")),
    "normal, tensor of deviations": (lambda x, n: torch.normal(1.0, x.abs() * n), 2.0, -2.0),
    "bernoulli_": (lambda x, n: x.bernoulli_(n), 0.3, 2.0),
    "bernoulli of a number": (lambda x, n: torch.bernoulli(x, n), 0.3, -0.1),
    "bernoulli of a tensor": (lambda x, n: torch.bernoulli(x * n), 1.0, 4.0),
    "uniform": (lambda x, n: x.uniform_(1, n), 3.0, 0.5),
    "random from": (lambda x, n: x.random_(1, n), 3, 1),
    "random to": (lambda x, n: x.random_(n), 3, 0),
    "randint": (lambda x, n: torch.randint(1, n, (2,), device=x.device), 3, -3),
    "poisson": (lambda x, n: torch.poisson(x * n), 1.0, -1.0),
    "renorm": (lambda x, n: torch.renorm(x[None], 2, 0, n), 1.5, -1.5),
    "huber": (lambda x, n: F.huber_loss(x, x * 2, delta=n), 1.5, 0.0),
    "smooth l1": (lambda x, n: F.smooth_l1_loss(x, x * 2, beta=n), 1.5, -1.0),
    "softshrink": (F.softshrink, 0.7, -0.7),
    "dropout": (lambda x, n: torch.native_dropout(x, n, True), 0.3, 1.3),
    "histc": (lambda x, n: torch.histc(x, 3, 1.0, n), 2.0, 0.5),
    "histc, not finite": (lambda x, n: torch.histc(x, 3, 1.0, n), 2.0, float("nan")),
    "power of integers": (lambda x, n: x.int() ** n, 5, -5),
    "usual power of integers": (lambda x, n: x.int() ** n, 5, -1),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_number_out_of_bounds(name: str, device: str) -> None:
    call, good, bad = CALLS[name]
    x = torch.tensor([0.2, 0.5, 0.7])
    with pytest.raises(RuntimeError):
        call(x.clone(), bad)
    call(x.to(device), good)
    with pytest.raises(RuntimeError):
        torch.utils._pytree.tree_map(torch.Tensor.cpu, call(x.to(device), bad))


def test_the_error_says_what_was_found(device: str) -> None:
    x = torch.zeros(3, device=device)
    with pytest.raises(RuntimeError, match=r"cauchy_ expects sigma > 0.0, but found sigma=-2"):
        x.cauchy_(0, -2)
    with pytest.raises(RuntimeError, match=r"random_ expects 'from' to be less than 'to': from=5, to=3"):
        x.random_(5, 3)
    assert x.tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["bernoulli_", "uniform", "random from", "huber", "power of integers"])
@pytest.mark.filterwarnings("ignore:a graph runs op by op")
def test_a_compiled_call_refuses_too(name: str, device: str) -> None:
    call, good, bad = CALLS[name]
    x = torch.tensor([0.2, 0.5, 0.7]).to(device)
    compiled = torch.compile(lambda x, n: call(x.clone(), n), backend="tpu")
    compiled(x, good).cpu()
    with pytest.raises(Exception, match=r"expects|non-positive|negative integer powers"):
        compiled(x, bad).cpu()
