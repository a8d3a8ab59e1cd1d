"""Determinants through LU, with the factors that their gradients solve with.

As CPU PyTorch does for contiguous matrices, a real matrix is factorized transposed; `linalg.mark_transpose` says why
that is written into the pivots.
"""

from __future__ import annotations

from typing import Any

from torus.backend.lowering.elementwise import is_complex
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.linalg import lu_factors, mark_transpose
from torus.backend.lowering.registry import lowers


def _factors(x: Any) -> tuple[Any, Any, Any, Any]:
    """Packed factors and pivots as PyTorch returns them, their diagonal, the sign of the permutation."""
    packed, pivots, _, _ = lu_factors(x if is_complex(x) else jnp.swapaxes(x, -1, -2))
    swaps = jnp.sum(pivots != lax.iota("int32", x.shape[-1]) + 1, -1, dtype="int32")
    sign = (1 - 2 * (swaps % 2)).astype(x.dtype)
    return packed, pivots if is_complex(x) else mark_transpose(pivots), jnp.diagonal(packed, axis1=-2, axis2=-1), sign


@lowers("aten::_linalg_det")
def determinant(x: Any) -> Any:
    packed, pivots, diagonal, sign = _factors(x)
    return jnp.prod(diagonal, -1) * sign, packed, pivots


@lowers("aten::_linalg_slogdet")
def sign_and_log_determinant(x: Any) -> Any:
    packed, pivots, diagonal, sign = _factors(x)
    return jnp.prod(lax.sign(diagonal), -1) * sign, jnp.sum(lax.log(lax.abs(diagonal)), -1), packed, pivots
