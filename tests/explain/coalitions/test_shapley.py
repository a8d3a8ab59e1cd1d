"""Shapley values against the sum over all orders, written out."""

from __future__ import annotations

import itertools

import pytest
import torch

from torus.explain import explain

SHAPLEY = ("exact_shapley", "shapley_sampling", "kernel_shap")


def game(features: int, seed: int = 0) -> tuple[torch.nn.Module, torch.Tensor]:
    """A function with interactions of every order, and two examples, in float64."""
    generator = torch.Generator().manual_seed(seed)
    first, second = (torch.randn(features, features, generator=generator).double() for _ in range(2))

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x @ first).prod(1) + (x @ second).sin().sum(1)

    return Model(), torch.randn(2, features, generator=generator).double()


def brute_force(model: torch.nn.Module, x: torch.Tensor, parts: list[list[int]]) -> torch.Tensor:
    """The mean over all orders of what each part adds, (b, parts); the baseline is zero."""
    found = torch.zeros(len(x), len(parts)).double()
    orders = list(itertools.permutations(range(len(parts))))
    for order in orders:
        now = torch.zeros_like(x)
        before = model(now)
        for part in order:
            now[:, parts[part]] = x[:, parts[part]]
            after = model(now)
            found[:, part] += (after - before) / len(orders)
            before = after
    return found


@pytest.mark.parametrize("method", SHAPLEY)
def test_all_coalitions_are_exact(method: str) -> None:
    model, x = game(5)
    found = explain(model, x, method=method)
    torch.testing.assert_close(
        found.attribution, brute_force(model, x, [[i] for i in range(5)]), rtol=1e-11, atol=1e-12
    )
    assert found.certificate.error == pytest.approx(0, abs=1e-12)
    assert found.certificate.passed


@pytest.mark.parametrize("method", SHAPLEY)
def test_features_are_segments_with_the_same_sums(method: str) -> None:
    model, x = game(6)
    segments = torch.tensor([[7, 2, 7, 2, 2, 9]])
    found = explain(model, x, method=method, segments=segments)
    expected = brute_force(model, x, [[1, 3, 4], [0, 2], [5]])
    torch.testing.assert_close(found.extras["features"], expected, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(found.attribution[:, [1, 3, 4]].sum(1), expected[:, 0])
    assert found.certificate.completeness_gap == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize("method", [*SHAPLEY, "feature_ablation"])
def test_one_feature_has_the_whole_change(method: str) -> None:
    model, x = game(4)
    found = explain(model, x, method=method, segments=torch.zeros(4, dtype=torch.int64))
    change = model(x) - model(torch.zeros_like(x))
    torch.testing.assert_close(found.extras["features"], change[:, None])
    torch.testing.assert_close(found.attribution, (change / 4)[:, None].expand(2, 4))


@pytest.mark.parametrize("method", SHAPLEY)
def test_a_negative_segment_stays_as_it_is(method: str) -> None:
    model, x = game(5)
    found = explain(model, x, method=method, segments=torch.tensor([0, 1, -1, 2, -1]))
    kept = torch.zeros_like(x)
    kept[:, [2, 4]] = x[:, [2, 4]]
    assert found.attribution[:, [2, 4]].count_nonzero() == 0
    torch.testing.assert_close(found.attribution.sum(1), model(x) - model(kept))


def test_segments_of_each_example_and_of_several_inputs() -> None:
    def model(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.prod(1) + (a.sum(1) * b.sum((1, 2))).tanh()

    a, b = torch.rand(2, 3).double() + 0.5, torch.rand(2, 2, 2).double()
    of_a, of_b = torch.tensor([[0, 0, 1], [1, 0, 0]]), torch.tensor([[[1, 1], [2, 2]]])
    found = explain(model, (a, b), method="exact_shapley", segments=(of_a, of_b))
    for row in range(2):
        alone = explain(model, (a[row : row + 1], b[row : row + 1]), method="exact_shapley", segments=(of_a[row], of_b))
        for whole, one in zip(found.attributions, alone.attributions, strict=True):
            torch.testing.assert_close(whole[row], one[0])


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("shapley_sampling", {"permutations": 90}),
        ("shapley_sampling", {"permutations": 90, "antithetic": False}),
        ("kernel_shap", {"samples": 300}),
        ("kernel_shap", {"samples": 300, "sampling": "kernel"}),
        ("kernel_shap", {"samples": 300, "paired": False}),
    ],
)
def test_samples_are_as_far_off_as_they_say(method: str, options: dict[str, object]) -> None:
    """Over 15 seeds the standard error is the mean distance from the exact values, and sums are exact each time."""
    model, x = game(10)
    exact = explain(model, x, method="exact_shapley").attribution
    ratios, found = [], None
    for seed in range(15):
        found = explain(model, x, method=method, seed=seed, tol=1e-9, **options)
        assert found.standard_error is not None
        assert "are needed" in found.certificate.verdict
        assert found.certificate.completeness_gap is not None
        assert found.certificate.completeness_gap < 1e-12
        ratios.append(((found.attribution - exact) / found.standard_error[0]).square())
    spread = float(torch.stack(ratios).mean().sqrt())
    assert 0.6 < spread < 1.4
