"""Errors of a model's layers in the precisions of a matrix unit."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from torus.twin.numerics import PASSES, ROOT, Numerics, numerics, relative


class Mixer(nn.Module):
    """A product of its own, beside those of the modules in it, one of which runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.inner(self.inner(x))
        return {"mixed": self.norm(hidden @ hidden.mT @ x) * scale}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.mixer = Mixer()
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(self.drop(self.mixer(self.first(x), scale)["mixed"]))
        return result


@pytest.fixture(scope="module")
def model() -> Model:
    torch.manual_seed(0)
    return Model().train()


@pytest.fixture(scope="module")
def found(model: Model) -> Iterator[Numerics]:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    yield numerics(model, {"x": torch.randn(4, 5, 6), "scale": torch.tensor(2.0)}, step="train")
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_layers_are_in_the_order_in_which_they_return(found: Numerics) -> None:
    names = ["first", "mixer.inner", "mixer.inner[2]", "mixer.norm", "mixer", "drop", "last", ROOT]
    assert [layer.name for layer in found.layers] == names
    assert [layer.kind for layer in found.layers][-2:] == ["Linear", "Model"]


def test_more_passes_leave_less_error(found: Numerics) -> None:
    for errors in [layer.error for layer in found.layers] + [gradient.error for gradient in found.gradients]:
        assert 1e-4 < errors["default"] < 0.2
        assert errors["highest"] < errors["high"] < errors["default"] / 30
    assert found.output["highest"] < 1e-5
    assert found.layers[-1].error == found.layers[-2].error


def test_the_first_error_is_that_of_rounded_inputs() -> None:
    torch.manual_seed(1)
    layer, x = nn.Linear(64, 32).requires_grad_(False), torch.randn(16, 64)
    exact = layer.double()(x.double())
    rounded = x.bfloat16().double() @ layer.weight.bfloat16().double().T + layer.bias
    result = numerics(layer.float(), x)
    assert result.output["default"] == pytest.approx(relative([rounded], [exact]), rel=1e-3)
    assert result.layers[0].adds == pytest.approx(result.output["default"])
    assert not result.gradients


def test_flops_and_additions_are_of_the_layers_own_products(found: Numerics) -> None:
    flops = {layer.name: layer.flops for layer in found.layers if layer.flops}
    assert flops == {
        "first": 2 * 20 * 6 * 8,
        "mixer.inner": 2 * 2 * 20 * 8 * 8,
        "mixer": 2 * 2 * 4 * 5 * 5 * 8,
        "last": 2 * 20 * 8 * 3,
    }
    assert {layer.name for layer in found.worst()} == set(flops)
    added = sum((layer.adds or 0) ** 2 for layer in found.layers) ** 0.5
    assert added / 3 < found.output["default"] < 3 * added


def test_some_layers_in_a_higher_precision(found: Numerics) -> None:
    assert [len(mix.layers) for mix in found.raised] == [1, 2]
    one, two = found.raised
    assert one.layers == (found.worst()[0].name,)
    assert PASSES["default"] < one.passes < two.passes < PASSES["high"]
    assert two.error < found.output["default"]


def test_reports(found: Numerics) -> None:
    rows = found.rows()
    assert rows[0] == ["layer", "kind", "FLOPs", "default", "high", "highest", "adds in default"]
    assert all(len(row) == len(rows[0]) for row in rows)
    text = found.table()
    assert "What adds most in 'default': " in text
    assert "mixer.inner.weight" in text
    assert "one by one" in text
    assert json.loads(json.dumps(found.json()))["output"] == found.output


def test_what_cannot_be_compared(model: Model) -> None:
    with pytest.raises(TypeError, match="and got function"):
        numerics(lambda x: x, torch.ones(1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'forward' or 'train', not 'backward'"):
        numerics(model, (), step="backward")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'default', 'high', 'highest', not 'best'"):
        numerics(model, (), precisions=("best",))
    assert relative([torch.ones(2)], [torch.ones(3)]) == float("inf")
