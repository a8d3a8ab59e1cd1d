"""Quadrature rules against polynomials and functions whose integrals are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from torus.explain.pieces import EDGE, cuts
from torus.explain.quadrature import crossing_lines, gauss_kronrod

# Piessens, de Doncker-Kapenga, Überhuber, Kahaner: QUADPACK (1983), the rule of 15 points.
OUTERMOST = (0.991455371120812639206854697526329, 0.022935322010529224963732008058970)
COUNTS = (2, 3, 5, 7, 10, 15)


def test_the_known_rule_of_15_points() -> None:
    rule = gauss_kronrod(7)
    assert 2 * rule.nodes[-1].item() - 1 == pytest.approx(OUTERMOST[0], abs=2e-16)
    assert 2 * rule.smooth.fine[-1].item() == pytest.approx(OUTERMOST[1], abs=2e-16)


@pytest.mark.parametrize("count", COUNTS)
def test_polynomials_are_exact_up_to_the_degrees_of_the_rules(count: int) -> None:
    rule = gauss_kronrod(count)
    x, low, high = rule.nodes, rule.nodes[0].item(), rule.nodes[-1].item()
    for degree in range(3 * count + 2):
        assert (rule.smooth.fine @ x**degree).item() == pytest.approx(1 / (degree + 1), abs=5e-16)
    for degree in range(2 * count):
        assert (rule.smooth.coarse @ x**degree).item() == pytest.approx(1 / (degree + 1), abs=5e-16)
    for degree in range(2 * count + 1):
        exact = (high ** (degree + 1) - low ** (degree + 1)) / (degree + 1)
        assert (rule.smooth.inner @ x**degree).item() == pytest.approx(exact, abs=2e-15)


def broken(x: torch.Tensor, at: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Value and slope of a function that bends at one place, and the integrals of two elements of its slope."""
    after = (x > at).to(x.dtype)
    elements = torch.stack([2 - 3 * after, -1 + 5 * after])
    values = x + 2 * (x - at).clamp_min(0)
    return values, elements, torch.tensor([2 - 3 * (1 - at), -1 + 5 * (1 - at)], dtype=x.dtype)


@pytest.mark.parametrize("at", [0.1, 0.31, 0.5, 0.77])
def test_one_bend_in_a_gap_is_exact_where_gauss_kronrod_is_not(at: float) -> None:
    rule = gauss_kronrod(7)
    values, elements, exact = broken(rule.nodes, at)
    weights = crossing_lines(rule.nodes, values, elements.sum(0), 2e-16)
    torch.testing.assert_close(elements @ weights.fine, exact, rtol=0, atol=2e-14)
    torch.testing.assert_close(elements @ weights.coarse, exact, rtol=0, atol=2e-14)
    assert (elements @ rule.smooth.fine - exact).abs().max() > 1e-3
    assert not weights.coarse[::2].any()


def test_slopes_add_up_to_the_rise_from_the_first_node_to_the_last() -> None:
    x = gauss_kronrod(7).nodes
    weights = crossing_lines(x, torch.sin(3 * x), 3 * torch.cos(3 * x), 2e-16)
    rise = torch.sin(3 * x[-1]) - torch.sin(3 * x[0])
    assert (weights.inner @ (3 * torch.cos(3 * x))).item() == pytest.approx(rise.item(), abs=1e-14)
    assert weights.fine.sum().item() == pytest.approx(1, abs=1e-14)


def test_values_that_are_only_rounding_share_gaps_in_halves() -> None:
    x = gauss_kronrod(3).nodes
    values = 1e8 + torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 1e-8
    weights = crossing_lines(x, values, torch.linspace(-1e-8, 1e-8, 7).double(), 2e-16)
    gaps = x.diff()
    torch.testing.assert_close(weights.inner[1:-1], (gaps[1:] + gaps[:-1]) / 2)


def test_cuts_find_the_narrow_part() -> None:
    nodes = gauss_kronrod(7).nodes.numpy()
    variation = np.zeros((2, 3, 14))
    variation[0, 0, 4] = 1.0  # all in one gap: its middle
    variation[0, 1, 0] = 1.0  # at the edge
    found = cuts(nodes, variation)
    assert found[0, 0] == pytest.approx((nodes[4] + nodes[5]) / 2)
    assert found[0, 1] == EDGE
    assert (found[1] == 0.5).all()
