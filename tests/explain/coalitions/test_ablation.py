"""Ablation, occlusion and LIME against loops that do what their names say."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from torus.explain import explain
from torus.explain.coalitions.ablation import feature_ablation
from torus.explain.function import ModelFunction
from torus.explain.methods import Run
from torus.explain.points import Points


def model(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(1).sin().cumsum(1).tanh().sum(1)


def image() -> torch.Tensor:
    return torch.randn(2, 2, 5, 7, generator=torch.Generator().manual_seed(1)).double()


def test_ablation_is_the_loss_of_each_feature() -> None:
    x = image()
    segments = torch.arange(70).reshape(2, 5, 7) // 9
    found = explain(model, x, method="feature_ablation", segments=segments, baselines=0.5).extras["features"]
    for feature in range(8):
        without = torch.where(segments == feature, 0.5, x)
        torch.testing.assert_close(found[:, feature], model(x) - model(without))


@pytest.mark.parametrize("chunk", [None, 3])
def test_ablation_of_several_numbers_has_them_at_the_end(chunk: int | None) -> None:
    x = image()
    segments = torch.arange(70).reshape(2, 5, 7) // 9

    class Several(ModelFunction):
        def __call__(self, points: Points) -> torch.Tensor:
            return torch.stack([model(points[0]), model(points[0] ** 2), model(-points[0] + 1)], 1)

    function, baselines = Several(model, (x,)), (torch.full_like(x, 0.5),)
    found = feature_ablation(function, (x,), baselines, Run(chunk=chunk), segments=segments)
    assert found.attributions[0].shape == (*x.shape, 3)
    for number, of in enumerate((model, lambda x: model(x**2), lambda x: model(1 - x))):
        one = feature_ablation(ModelFunction(of, (x,)), (x,), baselines, Run(), segments=segments)
        torch.testing.assert_close(found.attributions[0][..., number], one.attributions[0])
        torch.testing.assert_close(found.extras["features"][..., number], one.extras["features"])


def test_occlusion_is_the_mean_loss_of_the_windows_of_each_element(device: str) -> None:
    x, total, count = image(), torch.zeros(2, 2, 5, 7).double(), torch.zeros(5, 7)
    for row in (0, 2, 3):
        for column in (0, 2, 4):
            without = x.clone()
            without[:, :, row : row + 2, column : column + 3] = -1.0
            total[:, :, row : row + 2, column : column + 3] += (model(x) - model(without))[:, None, None, None]
            count[row : row + 2, column : column + 3] += 1
    for where in ("cpu", device):
        found = explain(model, x.to(where), method="occlusion", window=(2, 2, 3), stride=(1, 2, 2), baselines=-1)
        torch.testing.assert_close(found.attribution.cpu(), total / count, rtol=1e-11, atol=1e-12)


def test_occlusion_of_one_of_two_inputs() -> None:
    x, y = image(), image()[:, 0]

    def both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return model(x) * model(y)

    found = explain(both, (x, y), method="occlusion", window=(None, (5, 7)))
    assert found.attributions[0].count_nonzero() == 0
    change = both(x, y) - both(x, torch.zeros_like(y))
    torch.testing.assert_close(found.attributions[1], change[:, None, None].expand(2, 5, 7))


def test_lime_finds_the_coefficients_of_a_linear_function() -> None:
    x = image().flatten(1)[:, :8]
    weights = torch.linspace(-1, 1, 8).double()
    found = explain(lambda x: x @ weights + 3, x, method="lime", samples=200, ridge=1e-12)
    torch.testing.assert_close(found.attribution, x * weights)


def test_tokens_are_features_too() -> None:
    """Integers as inputs: the baseline is a token, and attributions are floats."""
    table = torch.randn(11, 4, generator=torch.Generator().manual_seed(0))
    tokens = torch.tensor([[3, 1, 4], [1, 5, 9]])
    found = explain(lambda ids: functional.embedding(ids, table).prod(1).sum(1), tokens, method="exact_shapley")
    assert found.attribution.dtype == torch.float32
    assert found.certificate.passed
