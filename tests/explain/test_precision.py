"""The guard compares precisions before a method runs: a coarse one is switched, refused or recorded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from torus.explain import explain
from torus.explain.precision import LowPrecision


class Coarse(nn.Module):
    """Weights are rounded to bfloat16 unless products are in the highest precision, on any machine."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.linear.weight
        exact = torch.get_float32_matmul_precision() == "highest"
        return torch.tanh((x * (weight if exact else weight.bfloat16().float())).sum(1))


@pytest.fixture
def medium() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    assert torch.get_float32_matmul_precision() == "medium"  # whatever happened
    torch.set_float32_matmul_precision(before)


X = torch.randn(2, 5, generator=torch.Generator().manual_seed(1))
METHOD = "input_x_gradient"


def test_a_coarse_precision_is_switched(medium: None) -> None:
    found = explain(Coarse().eval(), X, method=METHOD)
    torch.set_float32_matmul_precision("highest")
    exact = explain(Coarse().eval(), X, method=METHOD)
    torch.set_float32_matmul_precision("medium")
    assert torch.equal(found.attribution, exact.attribution)
    assert found.certificate.precision == "highest, switched from medium"
    assert found.certificate.precision_error is not None and 1e-3 < found.certificate.precision_error < 0.1
    assert found.certificate.gradients == 2 + 2 * 2 * 3  # the method, and three places in two precisions
    assert exact.certificate.precision == "highest" and exact.certificate.precision_error is None


def test_it_is_refused_on_request(medium: None) -> None:
    with pytest.raises(LowPrecision, match=r"'medium' precision are .* tolerance is 0.001"):
        explain(Coarse().eval(), X, method=METHOD, on_low_precision="refuse")


def test_it_is_recorded_where_it_is_good_enough_or_ignored(medium: None) -> None:
    for options in ({"tol": 0.1}, {"on_low_precision": "ignore"}):
        found = explain(Coarse().eval(), X, method=METHOD, **options)  # type: ignore[arg-type]
        assert found.certificate.precision == "medium"
        assert found.certificate.precision_error is not None and found.certificate.precision_error > 1e-3


def test_float64_has_one_precision(medium: None) -> None:
    found = explain(Coarse().double().eval(), X.double(), method=METHOD)
    assert found.certificate.precision_error is None


def test_other_actions_are_named() -> None:
    with pytest.raises(ValueError, match="switch, refuse, ignore"):
        explain(Coarse().eval(), X, method=METHOD, on_low_precision="hope")


def test_the_device_is_switched_to_exact_products(device: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 1)).eval()
    exact = explain(model, X, method=METHOD).attribution
    with torch.tpu.precision("default"):
        found = explain(model.to(device), X.to(device), method=METHOD, tol=1e-4)
        assert torch.tpu.get_precision() == torch.tpu.Precision.DEFAULT
    assert found.certificate.precision == "highest, switched from default"
    assert found.certificate.precision_error is not None and 1e-4 < found.certificate.precision_error < 0.1
    torch.testing.assert_close(found.attribution.cpu(), exact, rtol=2e-6, atol=2e-7)
