"""Infidelity, sensitivity and curves, where they can be said beforehand."""

from __future__ import annotations

import math

import pytest
import torch

from torus.explain import Run, explain, metrics, model_function
from torus.explain.methods import Attribution, method
from torus.explain.run import as_baselines

WEIGHTS = torch.linspace(-1, 2, 6).double()


def linear(x: torch.Tensor) -> torch.Tensor:
    return x @ WEIGHTS


def example() -> torch.Tensor:
    return torch.randn(3, 6, generator=torch.Generator().manual_seed(0)).double()


def infidelity(attributions: torch.Tensor, expected: bool) -> torch.Tensor:
    x = example()
    found = Attribution((attributions,), expected=linear(x) if expected else None)
    return metrics.infidelity(model_function(linear, x), (x,), as_baselines(None, (x,)), found, Run())


def test_infidelity_is_none_for_the_right_one_and_one_for_zero() -> None:
    right = example() * WEIGHTS
    torch.testing.assert_close(infidelity(right, True), torch.zeros(3).double())
    torch.testing.assert_close(infidelity(right * 0, True), torch.ones(3).double())
    torch.testing.assert_close(infidelity(right / 2, True), torch.full((3,), 0.25).double())


def test_what_promises_no_sum_is_scaled_to_fit() -> None:
    torch.testing.assert_close(infidelity(example() * WEIGHTS / 7, False), torch.zeros(3).double())
    assert (infidelity(example().flip(1), False) > 0.05).all()


def test_sensitivity_of_a_linear_function() -> None:
    """Gradients do not change; inputs times gradients change with the inputs, by less than the radius says."""
    x, run, none = example(), Run(), as_baselines(None, (example(),))
    function = model_function(linear, x)
    for name, options, most in (("saliency", {"signed": True}, 0.0), ("input_x_gradient", {}, 0.1 * math.sqrt(6))):
        chosen = method(name)
        found = chosen(function, (x,), none, run, **options)
        changed = metrics.sensitivity(chosen, function, (x,), none, found, run, options=options, radius=0.1)
        worst = 0.1 * x.abs().amax(1) * WEIGHTS.norm() / (x * WEIGHTS).norm(dim=1) if most else torch.zeros(3)
        assert (changed <= worst).all()
        assert (changed > 0).all() == bool(most)


def test_curves_go_from_end_to_end_in_the_order_of_the_attributions() -> None:
    x = example()
    found = explain(linear, x, method="exact_shapley")
    drawn = metrics.curves(
        model_function(linear, x), (x,), as_baselines(None, (x,)), Attribution(found.attributions), Run(), steps=6
    )
    gains = (x * WEIGHTS).sort(1, descending=True).values
    inserted = torch.cat((torch.zeros(3, 1), gains.cumsum(1)), 1)
    torch.testing.assert_close(drawn["insertion"], inserted)
    torch.testing.assert_close(drawn["deletion"], linear(x)[:, None] - inserted)


@pytest.mark.parametrize("name", ["saliency", "input_x_gradient", "shapley_sampling", "feature_ablation"])
def test_the_certificate_has_both_on_request(name: str) -> None:
    x = example()[:, :4]
    options = {"segments": torch.tensor([0, 0, 1, 2])} if "_" in name and name != "input_x_gradient" else {}
    plain = explain(lambda x: x.prod(1), x, method=name, baselines=0.5, **options)
    assert plain.certificate.infidelity is None
    found = explain(lambda x: x.prod(1), x, method=name, baselines=0.5, metrics=True, **options)
    assert found.certificate.infidelity is not None
    assert found.certificate.sensitivity is not None
    assert found.certificate.sensitivity > 0
    assert torch.equal(found.attribution, plain.attribution)
    assert found.certificate.values == plain.certificate.values


def test_tokens_have_no_sensitivity() -> None:
    table = torch.randn(11, 4, generator=torch.Generator().manual_seed(0))
    found = explain(
        lambda ids: table[ids].prod(1).sum(1), torch.tensor([[3, 1, 4]]), method="exact_shapley", metrics=True
    )
    assert found.certificate.infidelity is not None
    assert found.certificate.sensitivity is None
