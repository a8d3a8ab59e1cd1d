"""Householder reflectors, eigenvalues of general matrices, the matrix exponential."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.agree import Case, label, run
from tests.lowering.evaluate import evaluate
from torus.backend.lowering.apply import Context, tracing
from torus.backend.lowering.orthogonal import eigvals

pytestmark = pytest.mark.slow

aten = torch.ops.aten


def randn(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


TALL, WIDE, SQUARE, BATCH = randn(5, 3), randn(3, 5), randn(4, 4), randn(2, 4, 4)
Z = torch.complex(randn(3, 3), randn(3, 3, seed=1))
REFLECTORS = torch.geqrf(TALL)

CASES: list[Case] = [
    *[(aten.geqrf.default, x) for x in (TALL, WIDE, BATCH, Z, randn(0, 3))],
    *[
        (aten.ormqr.default, *REFLECTORS, (randn(5, 2) if left else randn(2, 5)), left, transpose)
        for left in (True, False)
        for transpose in (True, False)
    ],
    (aten.ormqr.default, *torch.geqrf(Z), Z, True, True),
    (aten.linalg_eig.default, SQUARE),
    (aten.linalg_eig.default, Z),
    (aten.linalg_eig.default, torch.zeros(0, 2, 2)),
    (aten._linalg_eigvals.default, BATCH),
    *[
        (aten.linalg_matrix_exp.default, x)
        for x in (BATCH, BATCH * 20, SQUARE.float(), Z, randn(2, 0, 0), randn(0, 3, 3))
    ],
    (aten.linalg_matrix_exp.default, torch.zeros(2, 3, 3)),
]


@pytest.mark.parametrize("case", CASES, ids=label)
def test_agrees(case: Case) -> None:
    run(case)


def test_general_eigenvalues_are_left_to_the_cpu_elsewhere() -> None:
    with tracing(Context(platform="tpu")), pytest.raises(NotImplementedError):
        eigvals(SQUARE.numpy())


def test_exponential_of_matrices_of_very_different_norms() -> None:
    x = torch.stack([randn(4, 4) * scale for scale in (1e-6, 1.0, 30.0)])
    torch.testing.assert_close(evaluate(aten.linalg_matrix_exp.default, x), torch.linalg.matrix_exp(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_matrix_exp_of_half_precisions_rounds_once(dtype: torch.dtype) -> None:
    x = (torch.randn(3, 3, generator=torch.Generator().manual_seed(0)) / 2).to(dtype)
    exact = torch.linalg.matrix_exp(x.double()).to(dtype)
    torch.testing.assert_close(evaluate(aten.linalg_matrix_exp.default, x), exact, rtol=0, atol=0)
