"""Factorizations by what they multiply back to, solves against CPU PyTorch."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.agree import Case, label, run, unexercised
from tests.lowering.evaluate import evaluate
from tests.lowering.test_kernels import NAMED
from torus.backend.lowering import linalg

pytestmark = pytest.mark.slow

aten = torch.ops.aten


def randn(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


A, B = randn(2, 4, 4), randn(2, 4, 3, seed=1)
SPD = A @ A.mT + torch.eye(4, dtype=torch.float64)
L = torch.linalg.cholesky(SPD)
SINGULAR = torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 1.0, 1.0]])
LU, PIVOTS = torch.linalg.lu_factor(A)
TALL, WIDE = randn(5, 3), randn(3, 5)
Z = torch.complex(randn(3, 3), randn(3, 3, seed=1))

CASES: list[Case] = [
    (aten.linalg_cholesky_ex.default, SPD),
    (aten.linalg_cholesky_ex.default, SPD.float(), {"upper": True}),
    (aten.linalg_cholesky_ex.default, Z @ Z.mH + torch.eye(3)),
    (aten.cholesky.default, SPD),
    (aten.cholesky.default, SPD.float(), True),
    (aten.cholesky_solve.default, B, L),
    (aten.cholesky_solve.default, B, L.mT.contiguous(), True),
    (aten.cholesky_inverse.default, L),
    *[
        (aten.linalg_solve_triangular.default, A, b, {"upper": upper, "left": left, "unitriangular": unit})
        for b, left in [(B, True), (B.mT.contiguous(), False)]
        for upper in (True, False)
        for unit in (True, False)
    ],
    (aten.triangular_solve.default, B, A),
    (aten.triangular_solve.default, B, A, False, True, True),
    (aten.linalg_lu_factor_ex.default, A),
    (aten.linalg_lu_factor_ex.default, TALL),
    (aten.linalg_lu.default, A),
    (aten.linalg_lu.default, TALL),
    (aten.linalg_lu.default, WIDE),
    (aten.lu_unpack.default, LU, PIVOTS),
    (aten.linalg_lu_solve.default, LU, PIVOTS, B),
    (aten.linalg_lu_solve.default, LU, PIVOTS, B, {"adjoint": True}),
    (aten.linalg_lu_solve.default, LU, PIVOTS, B.mT.contiguous(), {"left": False}),
    (aten._linalg_solve_ex.default, A, B),
    (aten._linalg_solve_ex.default, A, B.mT.contiguous(), {"left": False}),
    (aten._linalg_solve_ex.default, A[0], B[0, :, 0].contiguous()),
    (aten._linalg_solve_ex.default, Z, Z + 1),
    (aten.linalg_inv_ex.default, A),
    (aten.linalg_householder_product.default, *torch.geqrf(TALL)),
]


@pytest.mark.parametrize("case", CASES, ids=label)
def test_solve(case: Case) -> None:
    run(case)


@pytest.mark.parametrize("x", [A, TALL, WIDE, Z], ids=["batch", "tall", "wide", "complex"])
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_qr(x: torch.Tensor, mode: str) -> None:
    q, r = evaluate(aten.linalg_qr.default, x, mode)
    expected = aten.linalg_qr.default(x, mode)
    assert (q.shape, r.shape) == (expected[0].shape, expected[1].shape)
    torch.testing.assert_close(r.abs(), expected[1].abs())
    if mode != "r":
        torch.testing.assert_close(q @ r, x)


@pytest.mark.parametrize("x", [A, TALL, WIDE, Z], ids=["batch", "tall", "wide", "complex"])
@pytest.mark.parametrize("full", [False, True], ids=["reduced", "full"])
def test_svd(x: torch.Tensor, full: bool) -> None:
    u, s, vh = evaluate(aten._linalg_svd.default, x, full)
    expected = aten._linalg_svd.default(x, full)
    assert [t.shape for t in (u, s, vh)] == [t.shape for t in expected]
    torch.testing.assert_close(s, expected[1])
    k = s.shape[-1]
    torch.testing.assert_close(u[..., :k] * s[..., None, :] @ vh[..., :k, :], x)
    torch.testing.assert_close(evaluate(aten._linalg_svd.default, x, False, False)[1], s)


@pytest.mark.parametrize("x", [SPD, Z], ids=["real", "complex"])
@pytest.mark.parametrize("triangle", ["L", "U"])
def test_eigh_reads_one_triangle(x: torch.Tensor, triangle: str) -> None:
    values, vectors = evaluate(aten._linalg_eigh.default, x, triangle)
    half = x.tril(-1) if triangle == "L" else x.triu(1)
    diagonal = torch.diag_embed(x.diagonal(dim1=-2, dim2=-1).real).to(x.dtype)
    torch.testing.assert_close(values, aten._linalg_eigh.default(x, triangle)[0])
    torch.testing.assert_close(vectors * values[..., None, :] @ vectors.mH, half + half.mH + diagonal)
    torch.testing.assert_close(evaluate(aten._linalg_eigh.default, x, triangle, False)[0], values)


def test_info_names_the_pivot_that_failed() -> None:
    indefinite = torch.diag(torch.tensor([1.0, 2.0, -1.0, 3.0]))
    assert evaluate(aten.linalg_cholesky_ex.default, torch.stack([indefinite, torch.eye(4)]))[1].tolist() == [3, 0]
    for op, extra in [(aten.linalg_inv_ex.default, []), (aten._linalg_solve_ex.default, [torch.eye(3)])]:
        assert evaluate(op, SINGULAR, *extra)[-1] == op(SINGULAR, *extra)[-1]


def test_every_rule_has_a_case() -> None:
    others = [aten.linalg_qr.default, aten._linalg_svd.default, aten._linalg_eigh.default]
    assert not unexercised(linalg, [*NAMED, *others, *(case[0] for case in CASES)])
