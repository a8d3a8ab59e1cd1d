"""`explain` from end to end, with the simplest methods: what reaches the model, what comes back, what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torus.explain import explain, model_function
from torus.explain.chunks import Chunked
from torus.explain.modes import MODES


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).eval()


def inputs(count: int = 4) -> torch.Tensor:
    return torch.randn(count, 5, generator=torch.Generator().manual_seed(1))


def gradient(target: int) -> torch.Tensor:
    x = inputs().requires_grad_()
    model()(x)[:, target].sum().backward()
    assert x.grad is not None
    return x.grad


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_gives_the_gradient(mode: str, device: str) -> None:
    found = explain(model().to(device), inputs().to(device), 1, method="saliency", signed=True, mode=mode)
    torch.testing.assert_close(found.attribution.cpu(), gradient(1), rtol=2e-6, atol=2e-7)
    assert found.certificate.gradients == 4
    assert found.certificate.programs is not None
    assert found.certificate.programs > 0


@pytest.mark.parametrize("where", ["cpu", "tpu"])
def test_targets_of_each_example(where: str, device: str) -> None:
    wanted = [0, 2, 1, 2]
    expected = torch.stack([gradient(target)[row] for row, target in enumerate(wanted)])
    for target in (
        wanted,
        torch.tensor(wanted),
        lambda out: out.gather(1, torch.tensor([wanted]).T.to(out.device))[:, 0],
    ):
        found = explain(model().to(where), inputs().to(where), target, method="saliency", signed=True)
        torch.testing.assert_close(found.attribution.cpu(), expected, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_chunks_change_nothing_and_have_one_size(size: int) -> None:
    function = model_function(model(), inputs(2), 0)
    seen = []
    inner = function.grad
    function.grad = lambda points: (seen.append(len(points[0])), inner(points))[1]  # type: ignore[method-assign]
    points = (inputs(10),)
    values, (found,) = Chunked(function, size).grad(points)
    expected_values, (expected,) = model_function(model(), inputs(2), 0).grad(points)
    torch.testing.assert_close(values, expected_values)
    torch.testing.assert_close(found, expected)
    assert set(seen) == {2 * size}


def test_a_layer_is_explained_by_its_name_and_nothing_is_left_on_it() -> None:
    net = model()
    found = explain(net, inputs(), 0, method="saliency", layer="1", signed=True)
    torch.testing.assert_close(found.attribution, net[2].weight[0].expand(4, 8))
    assert not net[1]._forward_hooks


def test_a_compiled_model_with_a_layer_is_right(device: str) -> None:
    net = model().to(device)
    compiled = torch.compile(net, backend="tpu")
    compiled(inputs().to(device))
    found = explain(compiled, inputs().to(device), 0, method="saliency", layer="1", signed=True)
    torch.testing.assert_close(found.attribution.cpu(), net[2].weight[0].detach().cpu().expand(4, 8))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": "magic"}, "saliency"),
        ({"target": 3}, "out of range"),
        ({"target": (0, 1)}, "needs 1 for each row"),
        ({"target": [0, 1]}, "4 examples"),
        ({"target": None}, "one number for each row"),
        ({"layer": "nowhere"}, "no layer 'nowhere'"),
        ({"baselines": torch.zeros(3, 3)}, "does not fit"),
        ({"mode": "quick"}, "strict"),
        ({"chunk": 0}, "at least 1"),
        ({"inputs": torch.zeros(0, 5)}, "empty"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, object], words: str) -> None:
    given = {"inputs": inputs(), "target": 0} | change
    with pytest.raises(ValueError, match=words):
        explain(model(), **given)  # type: ignore[arg-type]


def test_training_mode_is_refused() -> None:
    net = nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5))
    with pytest.raises(ValueError, match=r"model\.eval\(\)"):
        explain(net, inputs(), 0, method="saliency")
