"""Least squares: by QR where the matrix is said to have full rank, by singular values otherwise."""

from __future__ import annotations

from typing import Any

from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.linalg import adjoint_of, product, triangular, with_common_batch
from torus.backend.lowering.registry import lowers

_WITH_VALUES = ("gelsd", "gelss")


def _by_qr(a: Any, b: Any) -> Any:
    rows, columns = a.shape[-2:]
    if rows >= columns:
        q, r = lax.linalg.qr(a, full_matrices=False)
        return triangular(r, product(adjoint_of(q), b), lower=False)
    q, r = lax.linalg.qr(adjoint_of(a), full_matrices=False)
    return product(q, triangular(r, b, lower=False, adjoint=True))


def _by_singular_values(a: Any, b: Any, rcond: Any) -> tuple[Any, Any, Any]:
    """The solution of least norm, the rank, and the singular values."""
    u, s, vh = lax.linalg.svd(a, full_matrices=False, compute_uv=True)
    kept = s > rcond * jnp.max(s, -1, keepdims=True)
    inverse = jnp.where(kept, 1 / jnp.where(kept, s, 1), 0).astype(a.dtype)
    solution = product(adjoint_of(vh), inverse[..., None] * product(adjoint_of(u), b))
    return solution, jnp.sum(kept, -1, dtype="int64"), s


def _threshold(rcond: Any, a: Any) -> Any:
    epsilon = jnp.finfo(a.dtype).eps
    if rcond is None:
        return epsilon * max(a.shape[-2:])
    rcond = rcond.astype(a.real.dtype)
    return jnp.where(rcond < 0, epsilon, rcond)


@lowers("aten::linalg_lstsq")
def lstsq(a: Any, b: Any, rcond: Any = None, *, driver: str | None = None) -> Any:
    """Solution, squared residuals, rank, singular values; empty where the driver does not give them."""
    rows, columns = a.shape[-2:]
    if driver in _WITH_VALUES and rows > columns:
        raise NotImplementedError("the residuals of gelsd and gelss: their sizes depend on the rank")
    vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    a, columns_of_b = with_common_batch(a, b[..., None] if vector else b)
    residuals, rank = jnp.zeros(0, a.real.dtype), jnp.zeros(0, "int64")
    values = residuals
    if a.size == 0 or b.size == 0:
        solution = jnp.zeros((*a.shape[:-2], columns, columns_of_b.shape[-1]), a.dtype)
        rank = rank if driver == "gels" else jnp.zeros(a.shape[:-2], "int64")
        values = jnp.zeros((*a.shape[:-2], min(rows, columns)), values.dtype) if driver in _WITH_VALUES else values
    elif driver == "gels":
        solution = _by_qr(a, columns_of_b)
    else:
        solution, rank, s = _by_singular_values(a, columns_of_b, _threshold(rcond, a))
        values = s if driver in _WITH_VALUES else values
    if driver == "gels" and rows > columns:
        gap = lax.abs(product(a, solution) - columns_of_b)
        residuals = jnp.sum(gap * gap, -2)
    return solution[..., 0] if vector else solution, residuals, rank, values
