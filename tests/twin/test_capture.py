"""A model as a step: the program does what PyTorch does, and says what its arguments are."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

import torus  # noqa: F401
from tests.twin.steps import Stack, run, values
from torus.twin.capture import capture
from torus.twin.factories import load
from torus.twin.module import read


def _mean_square(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(x).square().mean()


def test_a_training_step_is_that_of_pytorch() -> None:
    torch.manual_seed(0)
    model, x = Stack(1, 8).double(), torch.randn(8, 8, dtype=torch.float64)
    step = capture(model, (x,), step="train", loss=_mean_square, precision="highest")
    found = run(step, {**values(model), "x": x.numpy()})
    optimizer = torch.optim.AdamW(model.parameters())
    loss = _mean_square(model, x)
    loss.backward()
    optimizer.step()
    assert found["loss"] == pytest.approx(loss.item(), rel=1e-12)
    for name, expected in values(model).items():  # its step counters are float32 on the device, numbers on the host
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=2e-8, err_msg=name)
    state = optimizer.state[model.first.weight]
    np.testing.assert_allclose(found["first.weight.exp_avg"], state["exp_avg"].numpy(), rtol=1e-9, atol=1e-15)


def test_only_what_requires_a_gradient_is_trained_and_donated() -> None:
    model = Stack(1, 8)
    model.requires_grad_(False)
    model.last.requires_grad_(True)
    step = capture(model, (torch.zeros(4, 8),), step="train", optimizer=partial(torch.optim.SGD, lr=0.1, momentum=0.9))
    donated = [a.name for a in step.arguments if a.donated]
    assert donated == ["last.weight", "last.bias", "last.weight.momentum_buffer", "last.bias.momentum_buffer"]
    assert sorted(r.name for r in step.results) == sorted(["loss", *donated])
    model.last.requires_grad_(False)
    with pytest.raises(ValueError, match="Stack has no parameter that requires a gradient"):
        capture(model, (torch.zeros(4, 8),), step="train")


def test_inference_gives_outputs_and_the_buffers_that_it_changed() -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)), torch.randn(8, 4)
    step = capture(model, {"input": x}, precision="highest")
    found = run(step, {**values(model), "input": x.numpy()})
    expected = model(x)
    np.testing.assert_allclose(found["output"], expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["1.running_mean"], values(model)["1.running_mean"], rtol=1e-4, atol=1e-6)
    assert [r.name for r in capture(model.eval(), (x,)).results] == ["output"]


def test_a_model_on_meta_needs_no_memory() -> None:
    with torch.device("meta"):
        model = torch.nn.Linear(1 << 20, 1 << 20)
        step = capture(model, (torch.zeros(1, 1 << 20),))
    assert step.arguments[0].shape == (1 << 20, 1 << 20)


def test_each_op_has_its_module_in_the_backward_pass_too() -> None:
    step = capture(Stack(2, 8), (torch.zeros(4, 8),), step="train", optimizer=partial(torch.optim.SGD, lr=0.1))
    assert "optimization_barrier" not in step.text
    places = [op.place for op in read(step.text, step.mesh, step.places).main.ops if op.name == "dot_general"]
    for layer in ("layers.0", "layers.1"):  # forward; gradients of weight and input
        assert places.count(f"{layer}.up") == places.count(f"{layer}.down") == 3


class _Again(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stack = Stack(2, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.stack.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


def test_what_a_checkpoint_computes_again_stays_apart() -> None:
    with_checkpoints = capture(
        _Again(), (torch.zeros(4, 8),), step="train", optimizer=partial(torch.optim.SGD, lr=0.1)
    ).text
    assert with_checkpoints.count("stablehlo.optimization_barrier") == 2  # one for each layer


def test_models_are_found_by_name(tmp_path: object) -> None:
    recipe = load("tiny-gpt", layers=1, batch=2, tokens=8)
    assert recipe.inputs[0].shape == (2, 8) and recipe.model.words.weight.is_meta
    assert load("tests.twin.test_capture:example").inputs == 1
    for text, words in (
        ("nothing", "nothing.*names no model.*minilm"),
        ("no.module:f", "there is no module no.module"),
        ("none.py:f", "there is no file none.py"),
        ("json:nothing", "json has no function nothing"),
        ("tests.twin.test_capture:bad", "gave int"),
    ):
        with pytest.raises(ValueError, match=words):
            load(text)
    with pytest.raises(ValueError, match="no option colour; it has batch"):
        load("minilm", colour=1)


def example() -> tuple[object, object]:
    """What a user's function gives."""
    return torch.nn.Identity(), 1


def bad() -> int:
    """What it must not give."""
    return 3
