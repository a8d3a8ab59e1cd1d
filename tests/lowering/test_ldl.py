"""The Bunch-Kaufman factorization and its solves against CPU PyTorch."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.agree import agrees

pytestmark = pytest.mark.slow

aten = torch.ops.aten


def symmetric(*sizes: int, seed: int = 0) -> torch.Tensor:
    x = torch.randn(*sizes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return x + x.mT


ZERO_DIAGONAL = torch.tensor([[0.0, 1, 2, 3], [1, 0, 4, 5], [2, 4, 0, 6], [3, 5, 6, 0]], dtype=torch.float64)
MATRICES = {
    "one": symmetric(1, 1),
    "two": ZERO_DIAGONAL[:2, :2].contiguous(),
    "batch": symmetric(3, 2, 6, 6),
    "large": symmetric(80, 80),
    "zero diagonal": ZERO_DIAGONAL,
    "singular": torch.diag(torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64)),
    "not symmetric": torch.arange(9.0).reshape(3, 3).double(),
    "empty": torch.zeros(2, 0, 0),
    "complex": torch.complex(symmetric(5, 5), symmetric(5, 5, seed=1)),
}


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("name", MATRICES)
def test_factorization_and_solution(name: str, hermitian: bool) -> None:
    x = MATRICES[name]
    agrees(aten.linalg_ldl_factor_ex.default, x, hermitian=hermitian)
    packed, pivots, info = aten.linalg_ldl_factor_ex(x, hermitian=hermitian)
    if not info.any():
        b = torch.randn(*x.shape[:-1], 2, generator=torch.Generator().manual_seed(2)).to(x.dtype)
        agrees(aten.linalg_ldl_solve.default, packed, pivots, b, hermitian=hermitian)
