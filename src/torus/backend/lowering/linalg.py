"""Factorizations and solves, through XLA's own or LAPACK.

`info` counts as LAPACK's: 0 for success, otherwise one more than the index of the first pivot that failed.
"""

from __future__ import annotations

import functools
from typing import Any

from torus.backend.lowering.apply import check_factorization
from torus.backend.lowering.elementwise import is_complex
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.passes import in_passes, precision
from torus.backend.lowering.registry import OutSpec, lowers


def adjoint_of(x: Any) -> Any:
    x = jnp.swapaxes(x, -1, -2)
    return lax.conj(x) if is_complex(x) else x


def product(a: Any, b: Any) -> Any:
    return in_passes(functools.partial(jnp.matmul, precision=precision()), a, b)


def eye_like(x: Any, rows: int, columns: int) -> Any:
    return jnp.broadcast_to(jnp.eye(rows, columns, dtype=x.dtype), (*x.shape[:-2], rows, columns))


def first_true(bad: Any) -> Any:
    """1 + index of the first True along the last axis, 0 if there is none."""
    if bad.shape[-1] == 0:
        return jnp.zeros(bad.shape[:-1], "int32")
    return jnp.where(jnp.any(bad, -1), lax.argmax(bad.astype("uint8"), bad.ndim - 1, "int32") + 1, 0)


# Cholesky


@lowers("aten::linalg_cholesky_ex")
def cholesky_ex(x: Any, *, upper: bool = False, check_errors: bool = False) -> Any:
    if x.size == 0:
        return x, jnp.zeros(x.shape[:-2], "int32")
    lower = adjoint_of(x) if upper else x
    factor = lax.linalg.cholesky(lower, symmetrize_input=False)
    failed = jnp.any(_isnan_diagonal(factor))
    info = lax.cond(failed, _first_bad_minor, lambda a: jnp.zeros(a.shape[:-2], "int32"), lower)
    factor = jnp.tril(factor)
    return (adjoint_of(factor) if upper else factor), info


def _isnan_diagonal(x: Any) -> Any:
    """Where the diagonal of each matrix is NaN."""
    diagonal = jnp.diagonal(x, axis1=-2, axis2=-1)
    return diagonal != diagonal


def _first_bad_minor(x: Any) -> Any:
    """Order of the first leading minor that is not positive, by elimination. Reads the lower triangle."""
    size = x.shape[-1]
    whole = jnp.tril(x) + adjoint_of(jnp.tril(x, -1))

    def eliminate(k: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        rest, info = state
        column = lax.dynamic_index_in_dim(rest, k, rest.ndim - 1, keepdims=False)
        pivot = lax.dynamic_index_in_dim(column, k, column.ndim - 1, keepdims=False)
        info = jnp.where((info == 0) & ~(pivot.real > 0), (k + 1).astype("int32"), info)
        step = (
            column[..., :, None] * lax.conj(column)[..., None, :]
            if is_complex(x)
            else column[..., :, None] * column[..., None, :]
        )
        return rest - step / pivot[..., None, None], info

    return lax.fori_loop(0, size, eliminate, (whole, jnp.zeros(x.shape[:-2], "int32")))[1]


@lowers("aten::cholesky")
def cholesky(x: Any, upper: bool = False) -> Any:
    factor, info = cholesky_ex(x, upper=upper)
    check_factorization(
        info,
        "cholesky: The factorization could not be completed because the input is not positive-definite "
        "(the leading minor of order {value} is not positive-definite).",
    )
    return factor


@lowers("aten::cholesky_solve", "aten::_cholesky_solve_helper")
def cholesky_solve(b: Any, factor: Any, upper: bool = False) -> Any:
    lower = adjoint_of(factor) if upper else factor
    batch = jnp.broadcast_shapes(b.shape[:-2], lower.shape[:-2])
    b, lower = (jnp.broadcast_to(m, (*batch, *m.shape[-2:])) for m in (b, lower))
    half = triangular(lower, b, lower=True)
    return triangular(lower, half, lower=True, adjoint=True)


@lowers("aten::cholesky_inverse")
def cholesky_inverse(factor: Any, upper: bool = False) -> Any:
    return cholesky_solve(eye_like(factor, factor.shape[-1], factor.shape[-1]), factor, upper)


# Triangular systems


def triangular(a: Any, b: Any, lower: bool, left: bool = True, unit: bool = False, adjoint: bool = False) -> Any:
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=left,
        lower=lower,
        unit_diagonal=unit,
        transpose_a=adjoint,
        conjugate_a=adjoint and is_complex(a),
    )


def with_common_batch(a: Any, b: Any) -> tuple[Any, Any]:
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return jnp.broadcast_to(a, (*batch, *a.shape[-2:])), jnp.broadcast_to(b, (*batch, *b.shape[-2:]))


@lowers("aten::linalg_solve_triangular")
def solve_triangular(a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    a, b = with_common_batch(a, b)
    return triangular(a, b, lower=not upper, left=left, unit=unitriangular)


@lowers("aten::triangular_solve")
def triangular_solve(b: Any, a: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
    a, b = with_common_batch(a, b)
    solution = lax.linalg.triangular_solve(
        a, b, left_side=True, lower=not upper, unit_diagonal=unitriangular, transpose_a=transpose
    )
    return solution, a


# LU


def lu_factors(x: Any) -> tuple[Any, Any, Any, Any]:
    """Packed factors, LAPACK's 1-based pivots, row permutation, info."""
    packed, pivots, permutation = lax.linalg.lu(x)
    return packed, pivots + 1, permutation, first_true(jnp.diagonal(packed, axis1=-2, axis2=-1) == 0)


def mark_transpose(pivots: Any) -> Any:
    """The same permutation, written as no factorization writes it: the last step swaps the last two rows.

    Determinants factorize a real matrix transposed. Their gradient asks for the adjoint solution where it believes that
    they did not: PyTorch decides by the memory layout, which a rule does not know. The mark tells `lu_solve`.
    """
    size = pivots.shape[-1]
    if size < 2:
        return pivots
    return jnp.concatenate(
        [pivots[..., :-2], 2 * size - 1 - pivots[..., -2:-1], jnp.full_like(pivots[..., -1:], size - 1)], -1
    )


def are_of_transpose(pivots: Any) -> Any:
    """Whether `mark_transpose` made these pivots. A scalar."""
    size = pivots.shape[-1]
    return jnp.all(pivots[..., -1] == size - 1) if size > 1 else jnp.zeros((), bool)


def _need_pivoting(pivot: bool) -> None:
    if not pivot:
        raise NotImplementedError("LU factorization without pivoting")


def permutation_of(pivots: Any, rows: int) -> Any:
    return lax.linalg.lu_pivots_to_permutation(pivots.astype("int32") - 1, rows)


def _permute(rows: Any, permutation: Any) -> Any:
    return jnp.take_along_axis(rows, permutation[..., :, None], -2)


def _permutation_matrix(permutation: Any, dtype: Any) -> Any:
    """P with A = P L U: column i has its 1 where row i went."""
    rows = lax.iota("int32", permutation.shape[-1])
    return (rows[:, None] == permutation[..., None, :]).astype(dtype)


def _halves(packed: Any) -> tuple[Any, Any]:
    rows, columns = packed.shape[-2:]
    size = min(rows, columns)
    lower = jnp.tril(packed[..., :, :size], -1) + eye_like(packed, rows, size)
    return lower, jnp.triu(packed[..., :size, :])


def solve_from_factors(packed: Any, permutation: Any, b: Any, adjoint: bool = False) -> Any:
    packed, b = with_common_batch(packed, b)
    permutation = jnp.broadcast_to(permutation, packed.shape[:-1])
    if adjoint:
        half = triangular(packed, b, lower=False, adjoint=True)
        return _permute(triangular(packed, half, lower=True, unit=True, adjoint=True), jnp.argsort(permutation, -1))
    half = triangular(packed, _permute(b, permutation), lower=True, unit=True)
    return triangular(packed, half, lower=False)


@lowers("aten::linalg_lu_factor_ex")
def lu_factor_ex(x: Any, *, pivot: bool = True, check_errors: bool = False) -> Any:
    _need_pivoting(pivot)
    packed, pivots, _, info = lu_factors(x)
    return packed, pivots, info


@lowers("aten::linalg_lu")
def lu(x: Any, *, pivot: bool = True) -> Any:
    _need_pivoting(pivot)
    packed, _, permutation, _ = lu_factors(x)
    return _permutation_matrix(permutation, x.dtype), *_halves(packed)


@lowers("aten::lu_unpack")
def lu_unpack(
    packed: Any, pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True, *, out: tuple[OutSpec, ...]
) -> Any:
    empty = jnp.zeros(0, packed.dtype)
    permutation = permutation_of(pivots, packed.shape[-2])
    matrix = _permutation_matrix(permutation, packed.dtype) if unpack_pivots else empty
    return matrix, *(_halves(packed) if unpack_data else (empty, empty))


@lowers("aten::linalg_lu_solve")
def lu_solve(packed: Any, pivots: Any, b: Any, *, left: bool = True, adjoint: bool = False) -> Any:
    if not left:
        return adjoint_of(lu_solve(packed, pivots, adjoint_of(b), left=True, adjoint=not adjoint))
    permutation = permutation_of(pivots, packed.shape[-2])
    if not adjoint or is_complex(packed):
        return solve_from_factors(packed, permutation, b, adjoint)
    packed, b = with_common_batch(packed, b)
    return lax.cond(
        are_of_transpose(pivots),
        lambda packed, permutation, b: solve_from_factors(packed, permutation, b),
        lambda packed, permutation, b: solve_from_factors(packed, permutation, b, adjoint=True),
        packed,
        permutation,
        b,
    )


@lowers("aten::_linalg_solve_ex")
def solve_ex(a: Any, b: Any, *, left: bool = True, check_errors: bool = False, out: tuple[OutSpec, ...]) -> Any:
    packed, pivots, permutation, info = lu_factors(a)
    columns = b[..., None] if len(out[0].shape) == a.ndim - 1 and b.ndim == a.ndim - 1 else b
    if left:
        result = solve_from_factors(packed, permutation, columns)
    else:
        result = adjoint_of(solve_from_factors(packed, permutation, adjoint_of(columns), adjoint=True))
    return result.reshape(out[0].shape), packed, pivots, info


@lowers("aten::linalg_inv_ex")
def inv_ex(x: Any, *, check_errors: bool = False) -> Any:
    packed, _, permutation, info = lu_factors(x)
    return solve_from_factors(packed, permutation, eye_like(x, x.shape[-1], x.shape[-1])), info


# Orthogonal factorizations


@lowers("aten::linalg_qr")
def qr(x: Any, mode: str = "reduced", *, out: tuple[OutSpec, OutSpec]) -> Any:
    q, r = lax.linalg.qr(x, full_matrices=mode == "complete")
    return (jnp.zeros(out[0].shape, x.dtype) if mode == "r" else q), jnp.triu(r)


@lowers("aten::linalg_householder_product")
def householder_product(x: Any, tau: Any) -> Any:
    return lax.linalg.householder_product(x, tau)


@lowers("aten::_linalg_svd")
def svd(
    x: Any, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None, out: tuple[OutSpec, ...]
) -> Any:
    if compute_uv:
        u, s, vh = lax.linalg.svd(x, full_matrices=full_matrices, compute_uv=True)
        return u, s, vh
    s = lax.linalg.svd(x, full_matrices=False, compute_uv=False)
    return jnp.zeros(out[0].shape, x.dtype), s, jnp.zeros(out[2].shape, x.dtype)


@lowers("aten::_linalg_eigh")
def eigh(x: Any, UPLO: str = "L", compute_v: bool = True, *, out: tuple[OutSpec, ...]) -> Any:
    vectors, values = lax.linalg.eigh(x, lower=UPLO.upper() == "L", symmetrize_input=False, sort_eigenvalues=True)
    return values, vectors if compute_v else jnp.zeros(out[1].shape, x.dtype)
