"""Coalitions run in batches of one size, and what comes out depends neither on it nor on the device."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torus.explain import explain
from torus.explain.coalitions.game import BATCH

METHODS = {
    "shapley_sampling": {"permutations": 20},
    "kernel_shap": {"samples": 90},
    "feature_ablation": {},
    "lime": {"samples": 50},
}


def polynomial(x: torch.Tensor) -> torch.Tensor:
    """Elementwise, and summed in one order: a row's value does not depend on the rows beside it."""
    found = torch.zeros_like(x[:, 0])
    for left in range(x.shape[1] - 3):
        found = found + x[:, left] * x[:, left + 1] * x[:, left + 2] * (1 - x[:, left + 3])
    return found


def example(features: int = 9) -> torch.Tensor:
    return torch.randn(2, features, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("method", METHODS)
def test_the_size_of_a_batch_changes_no_bit(method: str) -> None:
    wanted = explain(polynomial, example(), method=method, tol=1e-9, **METHODS[method])
    for chunk in (1, 7, 1000):
        found = explain(polynomial, example(), method=method, tol=1e-9, chunk=chunk, **METHODS[method])
        assert torch.equal(found.attribution, wanted.attribution)
        assert found.certificate.error == wanted.certificate.error


@pytest.mark.parametrize("method", METHODS)
def test_every_batch_has_one_size(method: str) -> None:
    seen = set()

    def model(x: torch.Tensor) -> torch.Tensor:
        seen.add(len(x))
        return polynomial(x)

    explain(model, example(40), method=method, tol=1e-9, chunk=16, **METHODS[method])
    assert seen == {2, 32}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_the_device_agrees_with_the_cpu(method: str, mode: str, device: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, 1)).eval()
    wanted = explain(net, example(), method=method, seed=5, **METHODS[method])
    found = explain(net.to(device), example().to(device), method=method, seed=5, mode=mode, **METHODS[method])
    torch.testing.assert_close(found.attribution.cpu(), wanted.attribution, rtol=1e-5, atol=1e-6)


def test_an_image_is_read_less_than_once_a_permutation(device: str) -> None:
    """3 x 224 x 224 with 64 segments: 150,528 elements, and the host reads values only, once for many permutations."""
    place = torch.arange(224) // 28
    segments = place[:, None] * 8 + place
    image = torch.rand(1, 3, 224, 224, device=device)
    weight = torch.rand(3, 224, 224, device=device)
    found = explain(
        lambda x: (x * weight).sum((1, 2, 3)).square(),
        image,
        method="shapley_sampling",
        segments=segments,
        permutations=8,
        tol=0.1,
    )
    assert found.certificate.host_reads is not None
    assert found.certificate.host_reads <= 8
    assert found.certificate.values == 8 * 63 + (-8 * 63) % BATCH + 2
    assert found.certificate.passed


def test_sampling_stops_at_the_tolerance_and_says_so_when_it_cannot() -> None:
    x = example(12)
    loose = explain(polynomial, x, method="shapley_sampling", tol=0.5)
    tight = explain(polynomial, x, method="shapley_sampling", tol=1e-4)
    assert loose.certificate.passed
    assert loose.certificate.values < tight.certificate.values
    assert not tight.certificate.passed
    assert "64 permutations" in tight.certificate.verdict
    assert [error for _, error in tight.history][-1] == tight.certificate.error


@pytest.mark.parametrize("method", ["shapley_sampling", "kernel_shap"])
def test_where_nothing_interacts_little_is_drawn(method: str) -> None:
    x = example(40)
    found = explain(lambda x: x.sum(1), x.double(), method=method)
    torch.testing.assert_close(found.attribution, x.double())
    assert found.certificate.passed
    assert found.certificate.values < 1000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "exact_shapley"}, "2\\^40"),
        ({"method": "kernel_shap", "samples": 70}, "at least 78"),
        ({"method": "kernel_shap", "sampling": "best"}, "leverage, kernel"),
        ({"method": "shapley_sampling", "permutations": 0}, "at least 1"),
        ({"method": "lime", "samples": 1}, "at least 2"),
        ({"method": "lime", "segments": torch.zeros(3, dtype=torch.int64)}, "do not fit"),
        ({"method": "lime", "segments": torch.zeros(40)}, "integers"),
        ({"method": "lime", "segments": torch.full((40,), -1)}, "no feature"),
        ({"method": "lime", "segments": [torch.zeros(40).long()] * 2}, "2 inputs"),
        ({"method": "occlusion", "window": (50,)}, "does not fit"),
        ({"method": "occlusion", "window": (4,), "stride": 5}, "left out"),
        ({"method": "occlusion", "window": ((4,), (4,))}, "2 windows"),
    ],
)
def test_what_does_not_fit_is_named(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        explain(polynomial, example(40), **options)  # type: ignore[arg-type]
