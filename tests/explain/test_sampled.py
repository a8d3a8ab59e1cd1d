"""Methods that sample, against expectations that are known, in units of the standard errors that they state."""

from __future__ import annotations

import pytest
import torch

from torus.explain import Explanation, explain
from torus.explain.moments import Moments

MATRIX = torch.tensor([[2.0, -1.0, 0.5], [-1.0, 1.0, 0.0], [0.5, 0.0, -3.0]])
X = torch.tensor([[1.0, 2.0, -0.5], [0.3, -1.0, 1.5]])
NOISE, SPANS = 0.2, torch.tensor([2.5, 2.5])[:, None]


def quadratic(x: torch.Tensor) -> torch.Tensor:
    return (x @ MATRIX.to(x.device) * x).sum(1) / 2


def sampled(method: str, **options: object) -> Explanation:
    return explain(quadratic, X, method=method, **options)  # type: ignore[arg-type]


def off(found: Explanation, exact: torch.Tensor) -> float:
    """The largest distance in standard errors."""
    assert found.standard_error is not None
    return ((found.attribution - exact).abs() / found.standard_error[0]).max().item()


def test_batches_join_to_the_moments_of_all() -> None:
    samples = 5 + torch.randn(40, 3, 2, generator=torch.Generator().manual_seed(0))
    found = Moments.of(samples[:10]).joined(Moments.of(samples[10:12])).joined(Moments.of(samples[12:]))
    torch.testing.assert_close(found.mean, samples.mean(0))
    torch.testing.assert_close(found.variance, samples.var(0))
    torch.testing.assert_close(found.standard_error, samples.std(0) / 40**0.5)


@pytest.mark.parametrize("kind", ["mean", "squared", "variance"])
def test_smoothgrad_of_a_quadratic(kind: str) -> None:
    variance = (NOISE * SPANS) ** 2 * MATRIX.square().sum(0)
    exact = {"mean": X @ MATRIX, "squared": (X @ MATRIX) ** 2 + variance, "variance": variance.expand(2, 3)}[kind]
    found = sampled("smoothgrad", kind=kind, noise=NOISE, samples=4096, batch=512)
    assert off(found, exact) < 4
    assert found.certificate.gradients == 2 * 4096
    if kind == "mean":
        assert found.standard_error is not None
        torch.testing.assert_close(found.standard_error[0], (variance / 4096).sqrt().expand(2, 3), rtol=0.05, atol=0)


def test_sampling_ends_at_the_tolerance_or_says_what_is_missing() -> None:
    enough = sampled("smoothgrad", noise=NOISE, samples=4096, batch=64, tol=0.02)
    assert enough.certificate.passed and enough.certificate.gradients < 2 * 2048
    short = sampled("smoothgrad", noise=NOISE, samples=64, tol=0.001)
    assert "after 64 samples" in short.certificate.verdict
    assert [count for count, _ in short.history] == [16, 32, 48, 64]


def test_expected_gradients_over_baselines() -> None:
    references = torch.randn(5, 3, generator=torch.Generator().manual_seed(3))
    ways, middles = X[:, None] - references, (X[:, None] + references) / 2
    exact = (ways * (middles @ MATRIX)).mean(1)
    found = sampled("expected_gradients", references=references, samples=4096, batch=64)
    assert off(found, exact) < 4
    expected = quadratic(X) - quadratic(references).mean()
    assert found.certificate.error is not None and found.certificate.completeness_gap is not None
    gap = ((found.attribution.sum(1) - expected) / expected).abs().max().item()
    assert found.certificate.completeness_gap == pytest.approx(gap, rel=1e-3)
    assert gap < 4 * found.certificate.error


def test_one_baseline_leaves_the_place_alone_to_chance() -> None:
    """The gradient is linear along the way, and places are stratified: 4 draws of 64 are enough."""
    found = sampled("expected_gradients", batch=64, tol=0.01)
    torch.testing.assert_close(found.attribution, X * (X @ MATRIX) / 2, rtol=0.02, atol=0.02)
    assert found.certificate.passed and found.certificate.gradients == 2 * 4 * 64


@pytest.mark.parametrize("method", ["smoothgrad", "expected_gradients"])
def test_draws_depend_on_the_seed_alone(method: str) -> None:
    options = {"samples": 64, "batch": 16}
    first, again = sampled(method, **options), sampled(method, chunk=5, **options)
    assert torch.equal(first.attribution, again.attribution)
    assert not torch.equal(first.attribution, sampled(method, seed=1, **options).attribution)


def test_the_device_draws_as_the_cpu_and_is_read_once_a_batch(device: str) -> None:
    there = explain(quadratic, X.to(device), method="smoothgrad", samples=32)
    first = sampled("smoothgrad", samples=32)
    torch.testing.assert_close(there.attribution.cpu(), first.attribution, rtol=2e-6, atol=2e-6)
    assert there.certificate.host_reads is not None and there.certificate.host_reads <= 2


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("smoothgrad", {"kind": "cubed"}, "squared"),
        ("smoothgrad", {"samples": 20}, "batch"),
        ("expected_gradients", {"samples": 32}, "4 or more"),
        ("expected_gradients", {"references": torch.zeros(2, 4)}, "do not fit"),
    ],
)
def test_what_does_not_fit_is_named(method: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        sampled(method, **options)
