"""The Bunch-Kaufman factorization of symmetric (or Hermitian) matrices, and solves with it, as in LAPACK.

Blocks of D are 1 x 1 or 2 x 2. A pivot is the 1-based row that was exchanged, negative in both places of a 2 x 2 block.
"""

from __future__ import annotations

import math
from typing import Any

from torus.backend.lowering.elementwise import is_complex
from torus.backend.lowering.lazy import jax, jnp, lax
from torus.backend.lowering.linalg import product, with_common_batch
from torus.backend.lowering.registry import lowers

_ALPHA = (1 + math.sqrt(17)) / 8


def _conj(x: Any, hermitian: bool) -> Any:
    return lax.conj(x) if hermitian and is_complex(x) else x


def _whole(x: Any, hermitian: bool) -> Any:
    """The matrix that a lower triangle stands for."""
    strict = jnp.tril(x, -1)
    diagonal = jnp.diagonal(x)
    diagonal = diagonal.real.astype(x.dtype) if hermitian and is_complex(x) else diagonal
    return strict + _conj(strict, hermitian).T + jnp.diag(diagonal)


def _swap(index: Any, a: Any, b: Any) -> Any:
    return jnp.where(index == a, b, jnp.where(index == b, a, index))


def _size(x: Any) -> Any:
    """As LAPACK measures pivots: the sum of both parts of a complex number."""
    return lax.abs(x.real) + lax.abs(x.imag) if is_complex(x) else lax.abs(x)


def _choose(rest: Any, k: Any) -> tuple[Any, Any, Any]:
    """Which row comes next, whether the block is 2 x 2, whether the column is zero."""
    index = lax.iota("int32", rest.shape[0])
    column = jnp.where(index > k, _size(rest[:, k]), -1)
    row, own = jnp.argmax(column).astype("int32"), _size(rest[k, k])
    largest = jnp.maximum(column[row], 0)
    other = jnp.max(jnp.where((index >= k) & (index != row), _size(rest[:, row]), 0))
    stay = (own >= _ALPHA * largest) | (own * other >= _ALPHA * largest * largest)
    single = stay | (_size(rest[row, row]) >= _ALPHA * other)
    return jnp.where(stay, k, row), ~single, jnp.maximum(own, largest) == 0


def _factor(x: Any, hermitian: bool) -> tuple[Any, Any, Any]:
    """One matrix: L and D packed, pivots, info."""
    size = x.shape[0]
    index = lax.iota("int32", size)

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        k, rest, packed, pivots, info = state
        row, double, zero = _choose(rest, k)
        order = _swap(index, k + double, row)
        rest = rest[order][:, order]
        first, second = rest[:, k], rest[:, jnp.minimum(k + 1, size - 1)]
        after = index > k + double
        a, b, c = first[k], first[jnp.minimum(k + 1, size - 1)], second[jnp.minimum(k + 1, size - 1)]
        determinant = a * c - b * _conj(b, hermitian)
        left = jnp.where(double, (first * c - second * b) / determinant, first / jnp.where(zero, 1, a))
        right = jnp.where(double, (second * a - first * _conj(b, hermitian)) / determinant, 0)
        left, right = jnp.where(after, left, 0), jnp.where(after, right, 0)
        update = left[:, None] * _conj(first, hermitian) + right[:, None] * _conj(second, hermitian)
        rest = rest - jnp.where(after, update, 0)
        packed = jnp.where(index == k, jnp.where(after, left, jnp.where(index >= k, first, 0))[:, None], packed)
        column = jnp.where(after, right, jnp.where(index == k + 1, c, 0))
        packed = jnp.where(double & (index == k + 1), column[:, None], packed)
        here = (index == k) | (double & (index == k + 1))
        pivots = jnp.where(here, jnp.where(double, -(row + 1), row + 1), pivots)
        info = jnp.where((info == 0) & zero, k + 1, info)
        return k + 1 + double, rest, packed, pivots, info

    start = (jnp.int32(0), _whole(x, hermitian), jnp.zeros_like(x), jnp.zeros(size, "int32"), jnp.int32(0))
    return lax.while_loop(lambda state: state[0] < size, step, start)[2:]


def _over_batch(fn: Any, *arrays: Any) -> Any:
    batch = arrays[0].shape[:-2]
    flat = [a.reshape(math.prod(batch), *a.shape[len(batch) :]) for a in arrays]
    results = jax.vmap(fn)(*flat)
    shape = lambda r: r.reshape(*batch, *r.shape[1:])  # noqa: E731
    return tuple(map(shape, results)) if isinstance(results, tuple) else shape(results)


@lowers("aten::linalg_ldl_factor_ex")
def ldl_factor_ex(x: Any, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    if x.size == 0:
        return x, jnp.zeros(x.shape[:-1], "int32"), jnp.zeros(x.shape[:-2], "int32")
    return _over_batch(lambda m: _factor(m, hermitian), x)


def _solve(packed: Any, pivots: Any, b: Any, hermitian: bool) -> Any:
    """One system: L and its exchanges, D, then the adjoint of the first."""
    size = packed.shape[0]
    index = lax.iota("int32", size)
    paired = pivots < 0
    row = lax.abs(pivots) - 1
    # The second of a 2 x 2 block is the one at an odd place of a run of negative pivots.
    begins = lax.scan(lambda open, p: ((p & ~open), p & ~open), jnp.zeros((), bool), paired)[1]
    target = jnp.where(begins, index + 1, index)
    below = jnp.where((index[:, None] > target) & (index[:, None] > index), packed, 0)

    def swap(k: Any, b: Any) -> Any:
        """The exchange of a block is made once, between its second row and the pivot."""
        skip = paired[k] & ~begins[k]
        return jnp.where(skip, b, b[_swap(index, target[k], row[k])])

    def forward(k: Any, b: Any) -> Any:
        b = swap(k, b)
        return b - below[:, k][:, None] * b[k]

    def backward(i: Any, b: Any) -> Any:
        k = size - 1 - i
        correction = product(_conj(below[:, k], hermitian)[None], b)
        b = jnp.where((index == k)[:, None], b - correction, b)
        return swap(k, b)

    b = lax.fori_loop(0, size, forward, b)
    b = _solve_blocks(packed, begins, paired, b, hermitian)
    return lax.fori_loop(0, size, backward, b)


def _solve_blocks(packed: Any, begins: Any, paired: Any, b: Any, hermitian: bool) -> Any:
    """The solution with the blocks of D."""
    diagonal = jnp.diagonal(packed)[:, None]
    under = jnp.pad(jnp.diagonal(packed, -1), (0, 1))[:, None]
    below, above = (lambda x: jnp.roll(x, -1, 0)), (lambda x: jnp.roll(x, 1, 0))
    top = (b * below(diagonal) - _conj(under, hermitian) * below(b)) / (
        diagonal * below(diagonal) - under * _conj(under, hermitian)
    )
    over = above(under)
    bottom = (b * above(diagonal) - over * above(b)) / (diagonal * above(diagonal) - over * _conj(over, hermitian))
    return jnp.where(begins[:, None], top, jnp.where(paired[:, None], bottom, b / diagonal))


@lowers("aten::linalg_ldl_solve")
def ldl_solve(packed: Any, pivots: Any, b: Any, *, hermitian: bool = False) -> Any:
    packed, b = with_common_batch(packed, b)
    if b.size == 0:
        return b
    pivots = jnp.broadcast_to(pivots, packed.shape[:-1]).astype("int32")
    return _over_batch(lambda packed, pivots, b: _solve(packed, pivots, b, hermitian), packed, pivots, b)
