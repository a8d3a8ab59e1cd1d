"""The backward program computes the gradients that somebody asks for, and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tests.compile.compare import compiled, same
from torus.backend.compile import backward
from torus.backend.compile.backward import Backward

Gradients = Callable[[Any, nn.Module, torch.Tensor], Any]

ASKED: dict[str, Gradients] = {
    "the input": lambda f, net, x: torch.autograd.grad(f(x).sum(), x),
    "no leaf": lambda f, net, x: (lambda y: torch.autograd.grad(f(y).sum(), y))(x * 2),
    "a parameter": lambda f, net, x: torch.autograd.grad(f(x).sum(), net[0].weight),
    "the input and a parameter": lambda f, net, x: torch.autograd.grad(f(x).sum(), (net[2].bias, x)),
    "backward for the input": lambda f, net, x: (f(x).sum().backward(inputs=[x]), x.grad)[1],
}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Two numbers for each backward pass: the gradients asked for, and those that its program gives."""
    counts: list[int] = []
    choose = Backward._choose

    def choosing(self: Backward, wanted: tuple[bool, ...] | None) -> Any:
        counts.append(sum(self._given if wanted is None else wanted))
        run = choose(self, wanted)
        counts.append(sum(output is not None for output in backward._outputs(run.module.graph)))
        return run

    monkeypatch.setattr(Backward, "_choose", choosing)
    yield counts
    torch._dynamo.reset()


def case(device: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    return net.to(device), torch.randn(5, 3).to(device).requires_grad_()


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("dynamic", [False, True])
def test_some_gradients(name: str, dynamic: bool, device: str, made: list[int]) -> None:
    net, x = case(device)
    found = ASKED[name](compiled(net, dynamic=dynamic), net, x)
    expected = ASKED[name](*(lambda net, x: (net, net, x))(*case("cpu")))
    same(found, expected)
    wanted = 2 if " and " in name else 1
    assert made == [wanted, wanted]


def test_training_wants_them_all(device: str, made: list[int]) -> None:
    net, x = case(device)
    compiled(net)(x).sum().backward()
    assert made == [5, 5]
    plain, y = case("cpu")
    plain(y).sum().backward()
    same([p.grad for p in net.parameters()], [p.grad for p in plain.parameters()])
    same(x.grad, y.grad)


def test_numbers_among_the_arguments(device: str, made: list[int]) -> None:
    def scaled(x: torch.Tensor, number: int, weight: torch.Tensor) -> torch.Tensor:
        return (x * number) @ weight

    x, weight = torch.ones(2, 3, device=device, requires_grad=True), torch.ones(3, 3, device=device, requires_grad=True)
    run = compiled(scaled, dynamic=True)
    for number in (3, 4, 5):
        (found,) = torch.autograd.grad(run(x, number, weight).sum(), x)
        same(found.cpu(), torch.full((2, 3), 3.0 * number))
    assert made[-2:] == [1, 1]


def test_a_program_for_all_serves_the_first_other_question(device: str, made: list[int]) -> None:
    net, x = case(device)
    run = compiled(net)
    run(x).sum().backward()
    for _ in range(3):
        torch.autograd.grad(run(x).sum(), x)
    assert made == [5, 5, 1, 5, 1, 1, 1, 1]


def test_a_few_questions_have_programs_of_their_own(device: str, made: list[int]) -> None:
    net, x = case(device)
    run = compiled(net)
    for leaf in (x, *net.parameters()):
        torch.autograd.grad(run(x).sum(), leaf)
    assert made == [1, 1, 1, 1, 1, 5, 1, 5, 1, 5]


def test_what_nobody_needs_is_not_computed(device: str) -> None:
    part = backward._only(torch.fx.symbolic_trace(lambda x, w: (x @ w, w @ x.sin())), (True, False))
    assert [node.op for node in part.graph.nodes] == ["placeholder", "placeholder", "call_function", "output"]
    assert part(torch.ones(2, 2), torch.ones(2, 2))[1] is None
