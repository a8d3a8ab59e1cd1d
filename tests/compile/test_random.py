"""Random numbers in compiled graphs are those of eager mode on the device, and move its generator as far."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from tests.compile.compare import compiled, randn, same

X = randn(4, 5)
DRAWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.4),
    "dropout2d": lambda x: F.dropout2d(x.reshape(1, -1, 1, 1), 0.5),
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.3, True),
    "rand_like": lambda x: torch.rand_like(x) + x,
    "rand": lambda x: torch.rand(3, dtype=torch.float64, device=x.device),
    "randn": lambda x: torch.randn(3, 4, device=x.device),
    "randint": lambda x: torch.randint(0, 10, (5,), device=x.device),
    "randint from": lambda x: torch.randint(3, 9, (4,), device=x.device, dtype=torch.int32),
    "randint_like": lambda x: torch.randint_like(x, 3, 9),
    "randperm": lambda x: torch.randperm(7, device=x.device),
    "bernoulli": lambda x: torch.bernoulli(torch.sigmoid(x)),
    "uniform_": lambda x: torch.empty_like(x).uniform_(2, 3),
    "normal_": lambda x: x.clone().normal_(1, 2),
    "exponential_": lambda x: torch.empty_like(x).exponential_(),
    "multinomial": lambda x: torch.multinomial(torch.softmax(x, -1), 2),
    "attention": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], dropout_p=0.3),
    "three at once": lambda x: F.dropout(x, 0.1) * torch.randn_like(x) + torch.rand(5, device=x.device),
}


def _unused(x: torch.Tensor) -> torch.Tensor:
    F.dropout(x, 0.5), torch.rand(3, device=x.device), torch.empty_like(x).uniform_()
    return x * torch.rand_like(x)


DRAWS |= {
    "unused": _unused,
    "unused in a checkpoint": lambda x: checkpoint(_unused, x, use_reentrant=False) + F.dropout(x, 0.5),
}


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_are_those_of_eager_mode(name: str, seed: int) -> None:
    fn, x = DRAWS[name], X.to("tpu")
    torch.manual_seed(3)
    expected = [fn(x), fn(x), torch.rand(3, device="tpu")]
    fast = compiled(fn)
    torch.manual_seed(3)
    actual = [fast(x), fast(x), torch.rand(3, device="tpu")]
    assert not torch.equal(actual[0].cpu(), actual[1].cpu())
    same(actual, expected)


@pytest.mark.parametrize("name", ["dropout", "unused", "unused in a checkpoint"])
def test_numbers_are_those_of_eager_mode_where_gradients_are_wanted(name: str, seed: int) -> None:
    def run(fn: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        torch.manual_seed(3)
        x = X.to("tpu").requires_grad_()
        y = fn(x)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        return [y.detach(), gradient, torch.rand(3, device="tpu")]

    same(run(compiled(DRAWS[name])), run(DRAWS[name]))


def test_the_mask_of_dropout_is_that_of_the_forward_pass(seed: int) -> None:
    x = torch.ones(1000, device="tpu", requires_grad=True)
    y = compiled(lambda x: F.dropout(x * 2, 0.5))(x)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad.cpu(), y.detach().cpu())
    assert 300 < (y != 0).sum().item() < 700


def test_numbers_of_the_host_are_drawn_on_the_host(seed: int) -> None:
    fn, x = compiled(lambda x: x + torch.rand(5).to(x.device)), torch.zeros(5, device="tpu")
    torch.manual_seed(3)
    actual = [fn(x), fn(x)]
    torch.manual_seed(3)
    same(actual, [torch.rand(5), torch.rand(5)])


def test_a_new_seed_compiles_nothing(seed: int) -> None:
    fn, x = compiled(torch.rand_like), torch.zeros(5, device="tpu")
    torch.manual_seed(1)
    first = fn(x).cpu()
    before = torch.tpu.cache.stats()["requests"]
    torch.manual_seed(2)
    second = fn(x).cpu()
    torch.manual_seed(1)
    assert torch.equal(fn(x).cpu(), first)
    assert not torch.equal(second, first)
    assert torch.tpu.cache.stats()["requests"] == before
