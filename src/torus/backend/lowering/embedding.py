"""Embedding tables: lookup, bags, renormalisation and the gradients."""

from __future__ import annotations

from typing import Any

from torus.backend.lowering.apply import check_bounds
from torus.backend.lowering.axes import opmath, take, zero
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import OutSpec, lowers


@lowers("aten::embedding")
def embedding(
    weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    check_bounds(indices, weight.shape[0], 0, lower=0)
    return take(weight, 0, indices)


@lowers("aten::embedding_dense_backward")
def embedding_dense_backward(
    grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    flat = indices.reshape(-1)
    check_bounds(flat, num_weights, 0, lower=0)
    grad = opmath(grad_output).reshape(flat.size, grad_output.shape[-1])
    if scale_grad_by_freq:
        grad = grad / take(_counts(flat, num_weights, grad.dtype), 0, flat)[:, None]
    return _add_rows(grad, jnp.where(flat == padding_idx, num_weights, flat), num_weights)


@lowers("aten::embedding_renorm", static=("norm_type",))
def embedding_renorm(self: Any, indices: Any, max_norm: Any, norm_type: float) -> Any:
    flat = indices.reshape(-1)
    check_bounds(flat, self.shape[0], 0, lower=0)
    rows = opmath(take(self, 0, flat))
    norms = _row_norms(rows, norm_type)
    limit = lax.convert_element_type(max_norm, norms.dtype)
    scale = jnp.where(norms > limit, limit / (norms + jnp.asarray(1e-7, norms.dtype)), jnp.ones((), norms.dtype))
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    scaled = (rows * scale[:, None]).astype(self.dtype)
    return lax.scatter(self, flat[:, None], scaled, numbers, mode="drop") if flat.size else self


@lowers("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
def embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
    *,
    out: tuple[OutSpec, ...],
) -> tuple[Any, Any, Any, Any]:
    check_bounds(indices, weight.shape[0], 0, lower=0)
    bags = out[0].shape[0]
    bag = _bag_of_each(indices, offsets, bags)
    rows = opmath(take(weight, 0, indices))
    if per_sample_weights is not None:
        rows = rows * opmath(per_sample_weights)[:, None]
    real = indices != padding_idx
    target = jnp.where(real, bag, bags)
    sizes = _counts(target, bags, indices.dtype) if mode else jnp.zeros(bags, indices.dtype)
    if mode == 2:
        result, maxima = _bag_maximum(rows, indices, target, bags)
    else:
        result, maxima = _add_rows(rows, target, bags), sizes
        if mode == 1:
            result = result / jnp.maximum(sizes, 1).astype(result.dtype)[:, None]
    return result, _fit(bag, out[1]), _fit(sizes, out[2]), _fit(maxima, out[3])


@lowers("aten::_embedding_bag_dense_backward")
def embedding_bag_dense_backward(
    grad: Any,
    indices: Any,
    offset2bag: Any,
    bag_size: Any,
    maximum_indices: Any,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Any,
    padding_idx: int = -1,
) -> Any:
    g = opmath(grad)
    if mode == 2:
        return _bag_maximum_backward(g, maximum_indices, bag_size, num_weights)
    rows = take(g, 0, offset2bag)
    if mode == 1:
        rows = rows / take(jnp.maximum(bag_size, 1), 0, offset2bag).astype(g.dtype)[:, None]
    if per_sample_weights is not None:
        rows = rows * opmath(per_sample_weights)[:, None]
    if scale_grad_by_freq:
        rows = rows / take(_counts(indices, num_weights, g.dtype), 0, indices)[:, None]
    return _add_rows(rows, jnp.where(indices == padding_idx, num_weights, indices), num_weights)


@lowers("aten::_embedding_bag_backward")
def embedding_bag_backward(
    grad: Any,
    indices: Any,
    offsets: Any,
    offset2bag: Any,
    bag_size: Any,
    maximum_indices: Any,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Any,
    padding_idx: int = -1,
) -> Any:
    if sparse:
        raise NotImplementedError("a sparse gradient")
    bag = offset2bag if offset2bag.shape == indices.shape else _bag_of_each(indices, offsets, grad.shape[0])
    result = embedding_bag_dense_backward(
        grad,
        indices,
        bag,
        bag_size,
        maximum_indices,
        num_weights,
        scale_grad_by_freq,
        mode,
        per_sample_weights,
        padding_idx,
    )
    return result.astype(grad.dtype)


@lowers("aten::_embedding_bag_per_sample_weights_backward")
def embedding_bag_per_sample_weights_backward(
    grad: Any, weight: Any, indices: Any, offsets: Any, offset2bag: Any, mode: int, padding_idx: int = -1
) -> Any:
    bag = offset2bag if offset2bag.shape == indices.shape else _bag_of_each(indices, offsets, grad.shape[0])
    products = (opmath(take(grad, 0, bag)) * opmath(take(weight, 0, indices))).sum(axis=1)
    return jnp.where(indices == padding_idx, zero(products), products)


def _bag_of_each(indices: Any, offsets: Any, bags: int) -> Any:
    """The bag that each index belongs to: how many bags after the first have begun by then."""
    begun = jnp.zeros(indices.size + 1, indices.dtype).at[offsets[1:bags]].add(1, mode="drop")
    return lax.cumsum(begun, axis=0)[: indices.size]


def _counts(index: Any, size: int, dtype: Any) -> Any:
    return jnp.zeros(size, dtype).at[index].add(1, mode="drop")


def _add_rows(rows: Any, index: Any, size: int) -> Any:
    """Rows added up by index into zeros; an index of `size` drops its row."""
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    zeros = jnp.zeros((size, rows.shape[1]), rows.dtype)
    return lax.scatter_add(zeros, index[:, None], rows, numbers, mode="drop") if rows.size and size else zeros


def _row_norms(rows: Any, norm_type: float) -> Any:
    size = jnp.abs(rows)
    if norm_type == 2:
        return jnp.sqrt(jnp.sum(size * size, axis=1))
    if norm_type == 1:
        return jnp.sum(size, axis=1)
    if norm_type == float("inf"):
        return jnp.max(size, axis=1)
    return jnp.sum(size ** jnp.asarray(norm_type, rows.dtype), axis=1) ** jnp.asarray(1 / norm_type, rows.dtype)


def _bag_maximum(rows: Any, indices: Any, target: Any, bags: int) -> tuple[Any, Any]:
    """The maximum of each bag and feature, and which table row it came from; zeros for an empty bag."""
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    shape = (bags, rows.shape[1])
    if rows.size == 0:
        return jnp.zeros(shape, rows.dtype), jnp.zeros(shape, indices.dtype)
    low = jnp.full(shape, -jnp.inf, rows.dtype)
    best = lax.scatter_max(low, target[:, None], rows, numbers, mode="drop")
    place = lax.broadcasted_iota("int64", rows.shape, 0)
    hit = rows == take(best, 0, jnp.minimum(target, bags - 1))
    first = jnp.full(shape, rows.shape[0], "int64")
    first = lax.scatter_min(first, target[:, None], jnp.where(hit, place, rows.shape[0]), numbers, mode="drop")
    empty = first >= rows.shape[0]
    chosen = take(indices, 0, jnp.minimum(first, rows.shape[0] - 1))
    return jnp.where(empty, zero(rows), best), jnp.where(empty, zero(indices), chosen)


def _bag_maximum_backward(grad: Any, maximum_indices: Any, bag_size: Any, num_weights: int) -> Any:
    features = grad.shape[1]
    flat = maximum_indices.astype("int64") * features + lax.broadcasted_iota("int64", grad.shape, 1)
    flat = jnp.where((bag_size > 0)[: grad.shape[0], None], flat, num_weights * features)
    zeros = jnp.zeros(num_weights * features, grad.dtype)
    return zeros.at[flat.reshape(-1)].add(grad.reshape(-1), mode="drop").reshape(num_weights, features)


def _fit(x: Any, out: OutSpec) -> Any:
    """`x` in the sizes that PyTorch promises: its bookkeeping results are empty where a mode does not need them."""
    if x.shape == tuple(out.shape):
        return x
    if 0 in out.shape:
        return jnp.zeros(out.shape, x.dtype)
    return x.reshape(-1)[: out.shape[0]] if x.size >= out.shape[0] else jnp.pad(x, (0, out.shape[0] - x.size))
