"""Householder reflectors, and eigenvalues of general matrices."""

from __future__ import annotations

from typing import Any

from torus.backend.lowering.apply import current
from torus.backend.lowering.elementwise import is_complex
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import lowers


@lowers("aten::geqrf")
def geqrf(x: Any) -> Any:
    """R above the diagonal and reflectors below it, as LAPACK packs them; the factors of the reflectors."""
    if x.size == 0:
        return x, jnp.zeros((*x.shape[:-2], min(x.shape[-2:])), x.dtype)
    transposed, tau = jnp.linalg.qr(x, mode="raw")
    return jnp.swapaxes(transposed, -1, -2), tau


@lowers("aten::ormqr")
def ormqr(reflectors: Any, tau: Any, other: Any, left: bool = True, transpose: bool = False) -> Any:
    """`other` times the square Q, or its adjoint, of some reflectors."""
    if other.size == 0 or tau.shape[-1] == 0:
        return other
    return lax.linalg.ormqr(reflectors, tau, other, left=left, transpose=transpose)


def _eig(x: Any, vectors: bool) -> Any:
    if current().platform != "cpu":
        raise NotImplementedError("eigenvalues of general matrices: XLA has none for this platform")
    complex_type = x.dtype if is_complex(x) else jnp.result_type(x.dtype, "complex64")
    if x.size == 0:
        return [jnp.zeros(x.shape[:-1], complex_type), x.astype(complex_type)]
    return lax.linalg.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=vectors)


@lowers("aten::linalg_eig")
def eig(x: Any) -> Any:
    values, vectors = _eig(x, True)
    return values, vectors


@lowers("aten::_linalg_eigvals", "aten::linalg_eigvals.out")
def eigvals(x: Any) -> Any:
    return _eig(x, False)[0]
