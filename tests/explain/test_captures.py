"""Captured programs serve later calls, and never a model that was changed since."""

from __future__ import annotations

import gc
import weakref

import torch
from torch import nn

from torus.explain import Explanation, explain
from torus.explain.captures import Bindings, state_of
from torus.explain.function import model_function


class Masked(nn.Module):
    """Something with an argument, a plain attribute and layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.power = nn.Linear(4, 6), nn.Linear(6, 3), 1

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        hidden = self.first(x).tanh()
        return self.second(hidden if mask is None else hidden * mask) ** self.power


def compiled(model: nn.Module, x: torch.Tensor, **options: object) -> Explanation:
    return explain(model, x, 1, method="saliency", signed=True, mode="compiled", **options)  # type: ignore[arg-type]


def agrees(model: nn.Module, x: torch.Tensor, **options: object) -> Explanation:
    """The compiled explanation, which is that of a strict run."""
    found = compiled(model, x, **options)
    wanted = explain(model, x, 1, method="saliency", signed=True, mode="strict", **options)  # type: ignore[arg-type]
    torch.testing.assert_close(found.attribution.cpu(), wanted.attribution.cpu(), rtol=1e-5, atol=1e-6)
    return found


def test_later_calls_of_a_shape_compile_nothing(device: str) -> None:
    """Other inputs, other arguments, new parameter values: the same programs."""
    model = Masked().eval().to(device)
    for layer in (None, "first"):
        agrees(
            model, torch.randn(2, 4, device=device), arguments={"mask": torch.rand(2, 6, device=device)}, layer=layer
        )
        with torch.no_grad():
            model.first.weight.mul_(1.5)
        again = agrees(
            model, torch.randn(2, 4, device=device), arguments={"mask": torch.rand(2, 6, device=device)}, layer=layer
        )
        assert again.certificate.compiles == 0


def test_a_changed_model_is_captured_again(device: str) -> None:
    model = Masked().eval().to(device)
    x = torch.randn(2, 4, device=device)
    agrees(model, x)
    model.power = 2
    agrees(model, x)
    model.second = nn.Linear(6, 3).to(device)
    agrees(model, x)
    handle = model.first.register_forward_hook(lambda module, args, output: output * 3)
    agrees(model, x)
    handle.remove()
    agrees(model, x)


def test_a_program_belongs_to_a_precision(device: str) -> None:
    model = Masked().eval().to(device)
    x = torch.randn(2, 4, device=device)
    with torch.tpu.precision("default"):
        coarse = compiled(model, x, on_low_precision="ignore").attribution
    assert not torch.equal(agrees(model, x).attribution, coarse)


def test_what_decides_a_program_is_in_its_key() -> None:
    model, x = Masked(), torch.randn(2, 4)
    key = Bindings(model_function(model, x, 1)).key
    assert key == Bindings(model_function(model, x + 1, 1)).key
    assert key != Bindings(model_function(model, x, 2)).key
    assert key != Bindings(model_function(model, x, torch.tensor([1, 2]))).key
    assert key != Bindings(model_function(model, x, 1, layer="first")).key
    assert Bindings(model_function(model, x, 1, arguments={"cache": object()})).key is None
    assert state_of(model) != state_of(Masked())


def test_programs_go_with_their_model(device: str) -> None:
    model = Masked().eval().to(device)
    compiled(model, torch.randn(2, 4, device=device))
    gone = weakref.ref(model), weakref.ref(model.first.weight)
    del model
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
