"""Least squares against CPU PyTorch."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.agree import agrees
from tests.lowering.evaluate import evaluate

pytestmark = pytest.mark.slow

aten = torch.ops.aten


def randn(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("sizes", [(5, 3), (3, 5), (4, 4), (2, 5, 3), (0, 3), (0, 4, 3)], ids=str)
@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
def test_solution_rank_and_residuals(sizes: tuple[int, ...], driver: str | None) -> None:
    a, b = randn(*sizes), randn(*sizes[:-1], 2, seed=1)
    if driver in ("gelsd", "gelss") and sizes[-2] > sizes[-1]:
        with pytest.raises(NotImplementedError):
            evaluate(aten.linalg_lstsq.default, a, b, driver=driver)
    else:
        agrees(aten.linalg_lstsq.default, a, b, driver=driver)


def test_one_right_hand_side() -> None:
    agrees(aten.linalg_lstsq.default, randn(5, 3), randn(5, seed=1))
    agrees(aten.linalg_lstsq.default, randn(2, 5, 3), randn(2, 5, seed=1), driver="gels")


def test_rank_by_a_threshold() -> None:
    a = randn(4, 3)
    a[:, 2] = a[:, 0] * (1 + 1e-12)
    agrees(aten.linalg_lstsq.default, a, randn(4, 2, seed=1), 1e-8)


def test_complex() -> None:
    a, b = torch.complex(randn(4, 3), randn(4, 3, seed=1)), torch.complex(randn(4, 2), randn(4, 2, seed=2))
    for driver in (None, "gels"):
        agrees(aten.linalg_lstsq.default, a, b, driver=driver)
