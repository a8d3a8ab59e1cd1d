"""Matrix products. Half precisions accumulate in float32; integers wrap as PyTorch's do."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from torus.backend.lowering.apply import cast, current
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.passes import in_passes, precision
from torus.backend.lowering.reductions import opmath, widen
from torus.backend.lowering.registry import OutSpec, lowers
from torus.backend.lowering.repeats import first

Axes = tuple[int, ...]


def product(a: Any, b: Any, contracted: tuple[Axes, Axes], batch: tuple[Axes, Axes] = ((), ()), dtype: str = "") -> Any:
    """`lax.dot_general` in the accumulation dtype: `dtype` if given, float32 for half precisions, else that of `a`."""
    accumulate = dtype or opmath(str(a.dtype))

    def multiply(x: Any, y: Any) -> Any:
        x, y = _multipliable(x), _multipliable(y)
        return lax.dot_general(x, y, (contracted, batch), precision=precision(), preferred_element_type=accumulate)

    return in_passes(multiply, a, b)


def _multipliable(x: Any) -> Any:
    """XLA:CPU lacks products of half precisions with float32 results for some layouts, and gains nothing from them."""
    return widen(x) if current().platform == "cpu" else x


def _mm(a: Any, b: Any) -> Any:
    return product(a, b, ((1,), (0,)))


def _bmm(a: Any, b: Any) -> Any:
    """(n, r, k) times (n, k, c). One matrix for the whole batch, on either side, is read once."""
    if (matrix := first(b)) is not None:
        return product(a, matrix, ((2,), (0,)))
    if (matrix := first(a)) is not None:
        return jnp.swapaxes(product(matrix, b, ((1,), (1,))), 0, 1)
    return product(a, b, ((2,), (1,)), ((0,), (0,)))


def _combine(addend: Any, term: Any, beta: Any, alpha: Any) -> Any:
    """``beta * addend + alpha * term``; a `beta` of zero ignores the addend, NaN included."""
    dtype = term.dtype
    beta, alpha = jnp.asarray(beta).astype(dtype), jnp.asarray(alpha).astype(dtype)
    scaled = jnp.where(beta == 0, jnp.zeros((), dtype), beta * addend.astype(dtype))
    return scaled + alpha * term


@lowers("aten::mm", "aten::mm.dtype")
def mm(a: Any, b: Any, out_dtype: Any = None) -> Any:
    return _mm(a, b)


@lowers("aten::bmm", "aten::bmm.dtype")
def bmm(a: Any, b: Any, out_dtype: Any = None) -> Any:
    return _bmm(a, b)


@lowers("aten::mv")
def mv(a: Any, v: Any) -> Any:
    return product(a, v, ((1,), (0,)))


@lowers("aten::dot")
def dot(a: Any, b: Any) -> Any:
    return product(a, b, ((0,), (0,)))


@lowers("aten::vdot")
def vdot(a: Any, b: Any) -> Any:
    return dot(lax.conj(a) if jnp.issubdtype(a.dtype, jnp.complexfloating) else a, b)


@lowers("aten::addmm")
def addmm(addend: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _combine(addend, _mm(a, b), beta, alpha)


@lowers("aten::addmm.dtype")
def addmm_dtype(addend: Any, a: Any, b: Any, out_dtype: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _combine(addend, _mm(a, b), beta, alpha)


@lowers("aten::_addmm_activation")
def addmm_activation(addend: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1, use_gelu: bool = False) -> Any:
    x = _combine(addend, _mm(a, b), beta, alpha)
    if not use_gelu:
        return jnp.maximum(x, jnp.zeros((), x.dtype))
    return x * (1 + lax.erf(x * jnp.asarray(0.5**0.5, x.dtype))) * jnp.asarray(0.5, x.dtype)


@lowers("aten::addmv")
def addmv(addend: Any, a: Any, v: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _combine(addend, mv(a, v), beta, alpha)


@lowers("aten::addr")
def addr(addend: Any, u: Any, v: Any, *, beta: Any = 1, alpha: Any = 1, out: OutSpec) -> Any:
    u, v = cast(u, opmath(out.dtype)), cast(v, opmath(out.dtype))
    return _combine(addend, u[:, None] * v[None, :], beta, alpha)


@lowers("aten::baddbmm")
def baddbmm(addend: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _combine(addend, _bmm(a, b), beta, alpha)


@lowers("aten::addbmm")
def addbmm(addend: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _combine(addend, product(a, b, ((0, 2), (0, 1))), beta, alpha)


@lowers("aten::_int_mm")
def int_mm(a: Any, b: Any) -> Any:
    return product(a, b, ((1,), (0,)), dtype="int32")


@lowers("aten::_scaled_mm")
def scaled_mm(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:
    result = _mm(a.astype("float32"), b.astype("float32")) * scale_a * scale_b
    result = result if bias is None else result + widen(bias)
    result = result if scale_result is None else result * scale_result
    return cast(result, str(a.dtype if out_dtype is None else out_dtype).removeprefix("torch."))


_SCALES_BROADCAST = (0, 1)
"""The recipes of `torch.nn.functional.ScalingType` that have one scale for the matrix, or one for each row."""


@lowers("aten::_scaled_mm_v2")
def scaled_mm_v2(
    a: Any,
    b: Any,
    scale_a: Sequence[Any],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[Any],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    bias: Any = None,
    out_dtype: Any = None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Any:
    if any(recipe not in _SCALES_BROADCAST for recipe in (*recipe_a, *recipe_b)):
        raise NotImplementedError("products with a scale for each block")
    return scaled_mm(a, b, scale_a[0].reshape(-1, 1), scale_b[0].reshape(1, -1), bias, out_dtype=out_dtype)


def _group_of(rows: int, ends: Any) -> Any:
    """The group that holds each row, given where each group ends; rows after the last end get the number of groups."""
    return jnp.sum(lax.iota("int32", rows)[:, None] >= ends[None, :].astype("int32"), 1, dtype="int32")


def _grouped(a: Any, b: Any, ends: Any) -> Any:
    if a.ndim == 3 and b.ndim == 3:
        return _bmm(a, b)
    if a.ndim == 2 and b.ndim == 3:
        return _ragged(a, b, ends)
    if a.ndim == 3:
        return jnp.swapaxes(_ragged(b.T, jnp.swapaxes(a, 1, 2), ends), 0, 1)
    member = _group_of(a.shape[1], ends)[None, :] == lax.iota("int32", ends.shape[0])[:, None]
    masked = jnp.where(member[:, None, :], a[None], jnp.zeros((), a.dtype))
    return product(masked, b, ((2,), (0,)))


def _ragged(a: Any, b: Any, ends: Any) -> Any:
    """Rows of `a` (M, K) times the matrix of their group in `b` (G, K, N); zeros after the last group."""
    ends = ends.astype("int32")
    starts = jnp.concatenate([jnp.zeros(1, "int32"), ends[:-1]])
    if current().platform == "cpu":
        return _ragged_in_tiles(_multipliable(a), b, starts, ends)
    accumulate = jnp.dtype(opmath(str(a.dtype)))
    multiply = functools.partial(
        lax.ragged_dot, group_sizes=ends - starts, precision=precision(), preferred_element_type=accumulate
    )
    return in_passes(multiply, a, b)


def _ragged_in_tiles(a: Any, b: Any, starts: Any, ends: Any) -> Any:
    """A loop over tiles of rows of one group, because XLA:CPU multiplies every row with every group otherwise.

    A tile that starts at a group's last rows reaches into the next groups, whose tiles come later and overwrite it.
    """
    rows, groups = a.shape[0], b.shape[0]
    tile = max(1, min(64, -(-rows // groups)))
    tiles = -(-(ends - starts) // tile)
    last = jnp.cumsum(tiles, dtype="int32")
    padded = jnp.pad(a, ((0, tile), (0, 0)))

    def multiply(i: Any, out: Any) -> Any:
        group = jnp.sum((last <= i).astype("int32"), dtype="int32")
        start = starts[group] + (i - (last[group] - tiles[group])) * tile
        part = _mm(lax.dynamic_slice_in_dim(padded, start, tile), lax.dynamic_index_in_dim(b, group, keepdims=False))
        return lax.dynamic_update_slice_in_dim(out, part, start, 0)

    out = jnp.zeros((rows + tile, b.shape[2]), opmath(str(a.dtype)))
    out = lax.fori_loop(jnp.zeros((), "int32"), last[-1] if groups else 0, multiply, out)[:rows]
    return jnp.where(lax.iota("int32", rows)[:, None] < ends[-1], out, jnp.zeros((), out.dtype))


@lowers("aten::_grouped_mm")
def grouped_mm(a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    result = _grouped(a, b, offs)
    return result if bias is None else result + widen(bias)


@lowers("aten::trace")
def trace(x: Any, *, out: OutSpec) -> Any:
    return jnp.sum(cast(jnp.diagonal(x), opmath(out.dtype)))


@lowers("aten::linalg_cross")
def cross(x: Any, y: Any, *, dim: int = -1, out: OutSpec) -> Any:
    dtype, axis = opmath(out.dtype), dim % len(out.shape)
    x, y = (jnp.broadcast_to(cast(v, dtype), out.shape) for v in (x, y))
    turn = lambda v, k: jnp.roll(v, -k, axis)  # noqa: E731
    return turn(x, 1) * turn(y, 2) - turn(x, 2) * turn(y, 1)


@lowers("aten::_trilinear")
def trilinear(
    a: Any,
    b: Any,
    c: Any,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Any:
    """The product of three tensors that each lack some of the dimensions (`expand`), summed over others."""
    total = a.ndim + len(expand1)
    present = lambda missing: [axis for axis in range(total) if axis not in missing]  # noqa: E731
    first = [axis for axis in sumdim if axis in expand3]  # what the third lacks is summed before it comes in
    left = [axis for axis in present(first) if axis not in expand1 or axis not in expand2]
    ab = _einsum(widen(a), present(expand1), widen(b), present(expand2), left)
    return _einsum(ab, left, widen(c), present(expand3), present(sumdim)).astype(a.dtype)


def _einsum(x: Any, of_x: list[int], y: Any, of_y: list[int], kept: list[int]) -> Any:
    return in_passes(lambda x, y: jnp.einsum(x, of_x, y, of_y, kept, precision=precision()), x, y)


@lowers("aten::_weight_int8pack_mm")
def weight_int8pack_mm(self: Any, mat2: Any, scales: Any) -> Any:
    """``self @ mat2.T`` with int8 weights, each row of them with its scale; summed in float32."""
    wide = widen(self)
    return product(wide, mat2.astype(wide.dtype), ((1,), (1,))) * scales.astype(wide.dtype)
