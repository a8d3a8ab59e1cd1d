"""Determinants, and what their gradients solve with their factors."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.evaluate import evaluate

pytestmark = pytest.mark.slow

aten = torch.ops.aten


def randn(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


MATRICES = {
    "one": randn(1, 1),
    "two": randn(2, 2),
    "batch": randn(2, 3, 5, 5),
    "float32": randn(4, 4).float(),
    "complex": torch.complex(randn(3, 3), randn(3, 3, seed=1)),
    "singular": torch.ones(3, 3, dtype=torch.float64),
    "empty": torch.zeros(2, 0, 0),
    "none": torch.zeros(0, 3, 3),
}


@pytest.mark.parametrize("x", MATRICES.values(), ids=MATRICES.keys())
def test_determinants(x: torch.Tensor) -> None:
    for op in (aten._linalg_det.default, aten._linalg_slogdet.default):
        actual, expected = evaluate(op, x), op(x)
        torch.testing.assert_close(actual[:-1], list(expected[:-1]))
        unpacked = [torch.lu_unpack(*pair)[0] for pair in (actual[-2:], expected[-2:])]
        torch.testing.assert_close(*unpacked)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
@pytest.mark.parametrize("adjoint", [False, True], ids=["as if transposed", "as if not"])
def test_the_gradient_solves_with_the_transpose_whatever_it_believes(size: int, adjoint: bool) -> None:
    x, b = randn(3, size, size), randn(3, size, 2, seed=1)
    _, packed, pivots = evaluate(aten._linalg_det.default, x)
    actual = evaluate(aten.linalg_lu_solve.default, packed, pivots, b, adjoint=adjoint)
    torch.testing.assert_close(actual, torch.linalg.solve(x.mT, b))
