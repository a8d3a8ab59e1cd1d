"""Orthogonal polynomials against CPU PyTorch."""

from __future__ import annotations

import math

import pytest
import torch

from tests.lowering.agree import agrees, unexercised
from tests.lowering.evaluate import evaluate
from torus.backend.lowering import polynomials

pytestmark = pytest.mark.slow

aten = torch.ops.aten

NAMES = [
    *(f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
    *("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"),
]
OPS = {name: getattr(aten, f"special_{name}") for name in NAMES}
NAN = math.nan
X = torch.tensor([*torch.linspace(-3, 3, 25), 0.9, -0.3, 1 - 6e-8, math.inf, NAN], dtype=torch.float64)[:, None]
DEGREES = torch.tensor([-3, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 2.7, 130, 600, NAN], dtype=torch.float64)


@pytest.mark.parametrize("name", NAMES)
def test_float64(name: str) -> None:
    op = OPS[name].default
    torch.testing.assert_close(evaluate(op, X, DEGREES), op(X, DEGREES), rtol=1e-9, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_float32_is_as_near_as_on_the_cpu(name: str) -> None:
    op = OPS[name].default
    x = X[:-2].float()
    exact = op(x.double(), DEGREES)
    actual, expected = evaluate(op, x, DEGREES.float()), op(x, DEGREES.float())
    assert torch.equal(actual.isfinite(), expected.isfinite())
    both = expected.isfinite() & exact.isfinite()
    ours, cpu = (((y.double() - exact).abs() / (exact.abs() + 1))[both].max() for y in (actual, expected))
    assert ours <= 2 * cpu


@pytest.mark.parametrize("name", NAMES)
def test_overloads_and_dtypes(name: str) -> None:
    x, n = torch.tensor([0.3, -1.5, 2.0]), torch.tensor([2, 0, 3])
    agrees(OPS[name].n_scalar, x, 3)
    agrees(OPS[name].x_scalar, 0.25, n)
    agrees(OPS[name].default, x[:, None], n)
    agrees(OPS[name].default, n, n)
    agrees(OPS[name].default, torch.zeros(0), torch.tensor(2.0))


def test_every_rule_has_a_case() -> None:
    assert not unexercised(polynomials, [getattr(op, o) for op in OPS.values() for o in op.overloads()])
