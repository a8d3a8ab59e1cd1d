"""Bessel and Airy functions: against SciPy to rounding in float64, no further from it than CPU PyTorch in float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._prims
from scipy import special as exact

from tests.lowering.agree import agrees
from tests.lowering.evaluate import evaluate
from torus.backend.lowering import load_all
from torus.backend.lowering.registry import RULES

pytestmark = pytest.mark.slow

load_all()
aten = torch.ops.aten

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "airy_ai": lambda x: exact.airy(x)[0],
    "bessel_j0": exact.j0,
    "bessel_j1": exact.j1,
    "bessel_y0": exact.y0,
    "bessel_y1": exact.y1,
    "modified_bessel_i0": exact.i0,
    "modified_bessel_i1": exact.i1,
    "modified_bessel_k0": exact.k0,
    "modified_bessel_k1": exact.k1,
    "scaled_modified_bessel_k0": exact.k0e,
    "scaled_modified_bessel_k1": exact.k1e,
    "spherical_bessel_j0": lambda x: exact.spherical_jn(0, abs(x)),
}
X = torch.cat([torch.linspace(-20, 20, 401, dtype=torch.float64), torch.tensor([1e-7, 1e-3, 60.0, -60.0])])
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, -1.0, 104.0, 1e-30]


def arguments(name: str) -> torch.Tensor:
    return X[X > 0] if "_y" in name or "_k" in name else X


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64_is_exact_to_rounding(name: str) -> None:
    x = arguments(name)
    actual = evaluate(getattr(aten, f"special_{name}").default, x)
    torch.testing.assert_close(actual, torch.from_numpy(FUNCTIONS[name](x.numpy())), rtol=1e-13, atol=2e-14)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_is_as_near_as_on_the_cpu(name: str) -> None:
    x, op = arguments(name).float(), getattr(aten, f"special_{name}").default
    expected = torch.from_numpy(FUNCTIONS[name](x.double().numpy()))
    scale = expected.abs().clamp(min=1e-2)
    ours, cpu = (((y.double() - expected).abs() / scale).max() for y in (evaluate(op, x), op(x)))
    assert ours <= 2 * cpu


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_special_values(name: str, dtype: torch.dtype) -> None:
    x = torch.tensor(SPECIAL, dtype=dtype)
    op = getattr(aten, f"special_{name}").default
    torch.testing.assert_close(evaluate(op, x), op(x), rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize(
    "name", [n.removeprefix("prims::") for n in RULES if n.startswith("prims::") and "bessel" in n]
)
def test_names_that_decompositions_leave(name: str) -> None:
    agrees(getattr(torch.ops.prims, name).default, X[180:220].float().contiguous())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_integers_and_nothing(name: str) -> None:
    op = getattr(aten, f"special_{name}").default
    agrees(op, torch.tensor([[1, 2], [3, 7]]))
    agrees(op, torch.zeros(0, 2))
    agrees(op, torch.tensor(2.5))
