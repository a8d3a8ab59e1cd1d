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
    # What the dtype of the result does not hold.
    "fill": (lambda x, n: x.half().fill_(n), 6e4, 7e4),
    "fill of integers": (lambda x, n: x.int().fill_(n), 2, float("inf")),
    "full": (lambda x, n: torch.full((2,), n, device=x.device), 1e38, 1e39),
    "full of bytes": (lambda x, n: torch.full((2,), n, dtype=torch.uint8, device=x.device), 255, 256),
    "full of float8": (lambda x, n: torch.full((2,), n, dtype=torch.float8_e4m3fn, device=x.device), 448.0, 1e3),
    "full_like": (lambda x, n: torch.full_like(x, n, dtype=torch.int8), 127, 128),
    "an element": (lambda x, n: x.byte().__setitem__(0, n), 255, 300),
    "where": (lambda x, n: torch.where(x > 0, x.byte(), n), 255, 300),
    "masked_fill": (lambda x, n: x.half().masked_fill(x > 0, n), -6e4, -1e9),
    "index_fill": (lambda x, n: x.half().index_fill(0, torch.tensor([1], device=x.device), n), -6e4, -1e9),
    "scatter": (lambda x, n: x.half().scatter(0, torch.tensor([1], device=x.device), n), -6e4, -1e9),
    "pad": (lambda x, n: F.pad(x.half(), (1, 1), value=n), -6e4, -1e9),
    "clamp": (lambda x, n: x.half().clamp(max=n), 6e4, 1e9),
    "clamp_min": (lambda x, n: x.byte().clamp_min(n), 255, 256),
    "hardtanh": (lambda x, n: F.hardtanh(x.half(), -n, n), 6e4, 1e9),
    "hardshrink": (lambda x, n: F.hardshrink(x.half(), n), 6e4, 1e9),
    "threshold": (lambda x, n: F.threshold(x.half(), 0, n), 6e4, 1e9),
    "alpha": (lambda x, n: torch.add(x.half(), x.half(), alpha=n), 6e4, 1e9),
    "linspace": (lambda x, n: torch.linspace(0, n, 3, dtype=torch.uint8, device=x.device), 255, 256),
    "uniform of halves": (lambda x, n: x.half().uniform_(0, n), 6e4, 1e9),
    "histc, too large": (lambda x, n: torch.histc(x, 3, 0, n), 1e30, 1e39),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_number_out_of_bounds(name: str, device: str) -> None:
    call, good, bad = CALLS[name]
    x = torch.tensor([0.2, 0.5, 0.7])
    with pytest.raises(RuntimeError):
        call(x.clone(), bad)
    call(x.to(device), good)
    with pytest.raises(RuntimeError):
        torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, call(x.to(device), bad))


def test_a_single_half_becomes_infinite(device: str) -> None:
    """As on the CPU, which checks only where there are more: models mask half precision with -1e9."""
    x = torch.tensor([1.0, 2.0], dtype=torch.float16)
    for call in (
        lambda x: torch.where(x > 1, x, -1e9),
        lambda x: torch.full((1,), 1e9, dtype=torch.float16, device=x.device),
        lambda x: x.index_put((x > 1,), torch.scalar_tensor(1e9, dtype=x.dtype, device=x.device)),
    ):
        assert torch.equal(call(x.to(device)).cpu(), call(x))
        assert torch.equal(torch.compile(call, backend="tpu")(x.to(device)).cpu(), call(x))


@pytest.mark.parametrize(("dtype", "quotient"), [(torch.int64, -1), (torch.int8, -1), (torch.uint8, 255)])
def test_integers_divided_by_zero(dtype: torch.dtype, quotient: int, device: str) -> None:
    """Row D13 of docs/numerics.md."""
    x, zero = torch.tensor([7, 0], dtype=dtype, device=device), torch.zeros(2, dtype=dtype, device=device)
    for divided in (x // zero, torch.div(x, zero, rounding_mode="trunc"), torch.div(x, 0, rounding_mode="floor")):
        assert divided.tolist() == [quotient, quotient]
    for rest in (x % zero, x.fmod(zero), x % 0):
        assert torch.equal(rest, x)


def test_bounds_that_promote(device: str) -> None:
    """A byte clamped by a fraction is a float, which holds more."""
    x = torch.tensor([1, 255], dtype=torch.uint8)
    for bound in (300.5, -0.5):
        assert torch.equal(x.to(device).clamp(max=bound).cpu(), x.clamp(max=bound))


def test_the_error_says_what_was_found(device: str) -> None:
    x = torch.zeros(3, device=device)
    with pytest.raises(RuntimeError, match=r"cauchy_ expects sigma > 0.0, but found sigma=-2"):
        x.cauchy_(0, -2)
    with pytest.raises(RuntimeError, match=r"random_ expects 'from' to be less than 'to': from=5, to=3"):
        x.random_(5, 3)
    assert x.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "name", ["bernoulli_", "uniform", "random from", "huber", "power of integers", "fill", "alpha"]
)
@pytest.mark.filterwarnings("ignore:a graph runs op by op")
def test_a_compiled_call_refuses_too(name: str, device: str) -> None:
    call, good, bad = CALLS[name]
    x = torch.tensor([0.2, 0.5, 0.7]).to(device)
    compiled = torch.compile(lambda x, n: call(x.clone(), n), backend="tpu")
    compiled(x, good).cpu()
    with pytest.raises(Exception, match=r"expects|non-positive|negative integer powers|overflow"):
        compiled(x, bad).cpu()
