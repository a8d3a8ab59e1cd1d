"""Attributions as bundles give what `explain` gives, and those that cannot be one are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from torus.bundle import Bundle
from torus.explain import explain
from torus.explain.exported import export_attribution


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 3)).eval()


@pytest.mark.parametrize("method", ["input_x_gradient", "deeplift", "attn_lrp"])
def test_a_bundle_gives_what_explain_gives(method: str, tmp_path: Path, device: str) -> None:
    x, b = torch.randn(2, 4, 5)
    expected = explain(model(), x, 1, method=method, baselines=b)
    export_attribution(model(), torch.zeros(4, 5), tmp_path / "attribute", 1, method=method)
    found, value, baseline_value = Bundle.load(tmp_path / "attribute").run(x.numpy(), b.numpy())
    torch.testing.assert_close(torch.from_numpy(found.copy()), expected.attribution, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(torch.from_numpy(value.copy()), expected.values)
    torch.testing.assert_close(torch.from_numpy(baseline_value.copy()), expected.baseline_values)


def test_a_method_that_looks_at_values_is_refused(tmp_path: Path, device: str) -> None:
    with pytest.raises(ValueError, match=r"decides by values[\s\S]*deeplift"):
        export_attribution(model(), torch.zeros(4, 5), tmp_path / "attribute", 1, method="integrated_gradients")
