"""What is recorded at one point gives, replayed at another, what the function gives there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from torus.explain.relevance.deeplift import DEEPLIFT
from torus.explain.relevance.tape import record
from torus.explain.relevance.walk import Walk


class OldStyle(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        return x.exp()

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return grad


def halves(x: torch.Tensor) -> torch.Tensor:
    x = x * 1
    first, second = x[:, :2], x[:, 2:]
    first.mul_(second)
    second.copy_(first.sin())
    return x.sum(1)


def of_a_buffer(x: torch.Tensor) -> torch.Tensor:
    buffer = torch.ones(3, 4)
    before = x[:, 0] * buffer[:, 3]
    buffer[:, 1:3] = x[:, :2]
    rows = buffer.t()
    buffer.add_(1)
    return before + rows.prod(0)


def of_a_constant_that_changes(x: torch.Tensor) -> torch.Tensor:
    constant = torch.ones(4)
    y = x * constant
    constant.fill_(100.0)
    return y.sum(1)


def strided(x: torch.Tensor) -> torch.Tensor:
    x = (x * 2).t()
    x[1] = x[2] * x[3]
    x.unsqueeze_(0).transpose_(1, 2)
    x[0, :, 0].zero_()
    return x.sum((0, 2))


def branched(x: torch.Tensor) -> torch.Tensor:
    y = x * 3 if x.numel() and float(x.detach().abs().sum()) > 0 else x
    return y.relu_().sum(1)


def masked(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[x < 0] = 0.5
    return x.masked_fill_(x > 1, 7.0).sum(1)


def through_a_function(x: torch.Tensor) -> torch.Tensor:
    return OldStyle.apply(x).sum(1)


def of_its_input(x: torch.Tensor) -> torch.Tensor:
    x.add_(1).clamp_(min=0)
    return (x * x).sum(1)


def of_constants_alike(x: torch.Tensor) -> torch.Tensor:
    return (torch.zeros_like(x) + 2 + torch.where(x > 0, x, torch.full_like(x, 3))).sum(1)


def attended(x: torch.Tensor) -> torch.Tensor:
    q = x.view(-1, 1, 2, 2)
    seen = torch.tensor([[True, False], [True, True]])
    return (F.scaled_dot_product_attention(q, q + 1, q, attn_mask=seen) + F.scaled_dot_product_attention(q, q, q)).sum(
        (1, 2, 3)
    )


FUNCTIONS = [
    attended,
    branched,
    halves,
    masked,
    of_a_buffer,
    of_a_constant_that_changes,
    of_constants_alike,
    of_its_input,
    strided,
    through_a_function,
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_replay_is_the_function(function: Callable[[torch.Tensor], torch.Tensor], seed: int) -> None:
    x, other = torch.randn(2, 3, 4, dtype=torch.float64)
    kept = x.clone()
    torch.set_default_dtype(torch.float64)
    try:
        tape = record(lambda points: function(points[0]), (x,))
        assert tape.output is not None
        assert torch.equal(x, kept)  # the inputs themselves are never written to
        torch.testing.assert_close(tape.values[tape.output], function(x.clone()))
        base = tape.replay((other,))
        torch.testing.assert_close(base[tape.output], function(other.clone()))
        (multipliers,) = Walk(DEEPLIFT).back(tape, torch.ones(3), base)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close((multipliers * (x - other)).sum(1), tape.values[tape.output] - base[tape.output])


def test_only_what_the_output_depends_on_is_kept() -> None:
    def function(points: tuple[torch.Tensor, ...]) -> torch.Tensor:
        points[0].exp().sin()
        return points[0].sum(1)

    names = [step.name for step in record(function, (torch.ones(2, 3),)).steps]
    assert "aten::sum" in names
    assert "aten::exp" not in names
    assert record(lambda points: torch.ones(2), (torch.ones(2, 3),)).output is None


def test_sizes_that_depend_on_values_are_an_error() -> None:
    tape = record(lambda points: points[0][points[0] > 0].reshape(2, -1).sum(1), (torch.ones(2, 3),))
    with pytest.raises(RuntimeError):
        tape.replay((torch.tensor([[1.0, -1, 1], [1, 1, 1]]),))
