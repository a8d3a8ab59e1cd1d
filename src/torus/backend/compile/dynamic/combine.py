"""Padded operands: what brings elements together, after a value that changes nothing was put in the padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torus.backend.compile.dynamic.extents import Extents, Unpadded, agree, broadcast, masked
from torus.backend.compile.dynamic.run import PaddedRun, Results, axes, given, handles, operand_nodes, with_array
from torus.backend.lowering.lazy import jnp


def _lowest(dtype: Any) -> Any:
    if jnp.issubdtype(dtype, jnp.floating):
        return -jnp.inf
    return False if str(dtype) == "bool" else int(jnp.iinfo(dtype).min)


def _highest(dtype: Any) -> Any:
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.inf
    return True if str(dtype) == "bool" else int(jnp.iinfo(dtype).max)


_NEUTRAL: dict[str, Callable[[Any], Any]] = {
    "sum": lambda _: 0,
    "mean": lambda _: 0,
    "prod": lambda _: 1,
    "amax": _lowest,
    "max": _lowest,
    "argmax": _lowest,
    "amin": _highest,
    "min": _highest,
    "argmin": _highest,
    "any": lambda _: 0,
    "all": lambda _: 1,
    "logsumexp": _lowest,
    "linalg_vector_norm": lambda _: 0,
    "_softmax": _lowest,
    "_log_softmax": _lowest,
    "cumsum": lambda _: 0,
    "cumprod": lambda _: 1,
    "logcumsumexp": _lowest,
    "count_nonzero": lambda _: 0,
}


@handles(*_NEUTRAL)
def reduce(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Reductions, with places that do not count set to a value that changes nothing."""
    name = node.target._schema.name.removeprefix("aten::")
    source, extents = args[0], run.of(node.args[0])
    rank = source.array.ndim
    dims = axes(given(node, "dim"), rank)
    if name == "linalg_vector_norm" and given(node, "ord", 2) in (0, float("-inf")):
        raise Unpadded("this norm of a dynamic dimension")
    neutral = _NEUTRAL[name](source.array.dtype)
    args = [with_array(source, masked(source.array, extents, dims, neutral)), *args[1:]]
    results = run.plain(node, args, kwargs)
    if name == "mean":
        for dim in dims:
            if (extent := extents[dim]) is not None:
                count = extent.count().astype(results[0].dtype)
                results = [results[0] * (jnp.asarray(extent.padded, count.dtype) / count)]
    found = []
    for sizes in run.fixed(node):
        if len(sizes) == rank:
            keeps = name in ("_softmax", "_log_softmax", "cumsum", "cumprod", "logcumsumexp")
            found.append(tuple(e if keeps or d not in dims else None for d, e in enumerate(extents)))
        else:
            found.append(tuple(e for d, e in enumerate(extents) if d not in dims))
    return results, found


@handles("var", "var_mean", "std")
def variance(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Around the mean of what counts."""
    name = node.target._schema.name.removeprefix("aten::")
    extents = run.of(node.args[0])
    x = args[0].array
    work = x.astype("float32") if x.dtype.itemsize < 4 else x
    dims = axes(given(node, "dim"), x.ndim)
    count = jnp.asarray(1.0, work.dtype)
    for dim in dims:
        extent = extents[dim]
        count = count * (work.shape[dim] if extent is None else extent.count().astype(work.dtype))
    mean = masked(work, extents, dims, 0).sum(tuple(dims), keepdims=True) / count
    square = masked((work - mean) ** 2, extents, dims, 0).sum(tuple(dims), keepdims=True)
    correction = given(node, "correction", 1)
    result = square / jnp.maximum(count - correction, 0)
    keep = bool(given(node, "keepdim", False))
    kept = tuple((None if d in dims else e) for d, e in enumerate(extents) if keep or d not in dims)
    arrays = [jnp.sqrt(result) if name == "std" else result] + ([mean] if name == "var_mean" else [])
    arrays = [(a if keep else a.reshape([s for d, s in enumerate(a.shape) if d not in dims])) for a in arrays]
    return [a.astype(x.dtype) for a in arrays], [kept] * len(arrays)


@handles("_softmax_backward_data", "_log_softmax_backward_data")
def softmax_backward(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """The gradient and the result both count as zero outside; exp of a zero gradient's log does not matter."""
    dims = [node.args[2] % args[0].array.ndim]
    gradient = with_array(args[0], masked(args[0].array, run.of(node.args[0]), dims, 0))
    output = with_array(args[1], masked(args[1].array, run.of(node.args[1]), dims, 0))
    extents = broadcast([(args[i].array.shape, run.of(node.args[i])) for i in (0, 1)], args[0].array.shape, "softmax")
    return run.plain(node, [gradient, output, *args[2:]], kwargs), [extents]


_CONTRACTED = {"mm": (0, 1, 1, 0), "bmm": (0, 1, 2, 1), "addmm": (1, 2, 1, 0), "baddbmm": (1, 2, 2, 1)}
"""Name -> the two factors among the arguments, and the dimension of each that is summed over."""


@handles(*_CONTRACTED, aligns=True)
def matmul(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Products, with both factors zero where their common dimension does not count."""
    name = node.target._schema.name.removeprefix("aten::")
    left, right, last, first = _CONTRACTED[name]
    a, b = run.of(node.args[left]), run.of(node.args[right])
    if not agree(a[last], b[first]) or (last == 2 and not agree(a[0], b[0])):
        for source in (node.args[left], node.args[right]):
            run.compact(source)
        args, kwargs = run.arguments(node)
        a, b = run.of(node.args[left]), run.of(node.args[right])
    args = list(args)
    if a[last] is not None or b[first] is not None:
        left_extent = a[last]
        common = b[first] if left_extent is None or left_extent.uniform else left_extent
        for place, dim, extents in ((left, last, a), (right, first, b)):
            whole = tuple(common if d == dim else e for d, e in enumerate(extents))
            args[place] = with_array(args[place], masked(args[place].array, whole, [dim], 0))
    batch = [a[0] if a[0] is not None else b[0]] if last == 2 else []
    return run.plain(node, args, kwargs), [(*batch, a[last - 1], b[-1])]


def _last(dtype: Any, descending: bool) -> Any:
    """What comes after everything else: a NaN counts as the largest number, and of equals the first comes first."""
    if descending:
        return _lowest(dtype)
    return jnp.nan if jnp.issubdtype(dtype, jnp.floating) else _highest(dtype)


@handles("sort", "topk")
def order(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Sorting, with places that do not count behind all others."""
    run.compact(node.args[0])
    args, kwargs = run.arguments(node)
    extents, x = run.of(node.args[0]), args[0].array
    (dim,) = axes(given(node, "dim", -1), x.ndim) or [0]
    sorts = node.target._schema.name == "aten::sort"
    last = _last(x.dtype, given(node, "descending", False) if sorts else given(node, "largest", True))
    args = [with_array(args[0], masked(x, extents, [dim] if x.ndim else [], last)), *args[1:]]
    found = tuple(e if sorts or d != dim else None for d, e in enumerate(extents))
    return run.plain(node, args, kwargs), [found, found]


def _zero_outside(run: PaddedRun, node: Any, args: list[Any]) -> tuple[list[Any], Extents]:
    """The first two arguments of a convolution, images, with zeros where the padding of a convolution has them."""
    for source in node.args[:2]:
        run.compact(source)
    images = list(args)
    for i, source in enumerate(node.args[:2]):
        extents = run.of(source)
        images[i] = with_array(args[i], masked(run.values[source], extents, range(len(extents)), 0))
    return images, run.of(node.args[0])


@handles("convolution")
def convolution(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Over images whose number or sizes are dynamic; what lies outside of them is zero."""
    args, image = _zero_outside(run, node, args)
    if image[1] is not None or any(run.of(node.args[1])):
        raise Unpadded("a convolution with a dynamic number of channels, or a dynamic kernel")
    return run.plain(node, args, kwargs), [run.extents_of(node.meta["val"])]


@handles("convolution_backward")
def convolution_backward(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """The gradients of weight and bias sum over images and places; those that do not count give nothing."""
    args, gradient = _zero_outside(run, node, args)
    image = run.of(node.args[1])
    if gradient[1] is not None or image[1] is not None or any(run.of(node.args[2])):
        raise Unpadded("a convolution with a dynamic number of channels, or a dynamic kernel")
    results = run.plain(node, args, kwargs)
    return results, [image, *[(None,) * 9] * (len(results) - 1)]


@handles(
    *"_adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d adaptive_max_pool2d avg_pool2d "
    "avg_pool2d_backward max_pool2d_with_indices max_pool2d_with_indices_backward adaptive_max_pool2d_backward "
    "upsample_nearest2d upsample_bilinear2d upsample_nearest2d_backward upsample_bilinear2d_backward pixel_shuffle "
    "_native_batch_norm_legit_no_training reflection_pad1d reflection_pad2d replication_pad2d glu glu_backward "
    "native_group_norm".split()
)
def batched(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Each element of the first dimension for itself."""
    nodes = operand_nodes(node)
    if any(e is not None for n in nodes for e in run.of(n)[1:]):
        raise Unpadded(f"{node.target} over a dynamic dimension")
    first = next((run.of(n)[0] for n in nodes if run.of(n) and run.of(n)[0] is not None), None)
    sizes = run.fixed(node)
    batch = run.values[nodes[0]].shape[0]
    found = [((first if s[:1] == (batch,) else None), *[None] * (len(s) - 1)) if s else () for s in sizes]
    return run.plain(node, args, kwargs), found


@handles("native_layer_norm")
def layer_norm(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Over the last dimensions, which are not dynamic."""
    extents, last = run.of(node.args[0]), len(node.args[1])
    if any(extents[len(extents) - last :]):
        raise Unpadded("a norm over a dynamic dimension")
    statistics = (*extents[: len(extents) - last], *[None] * last)
    return run.plain(node, args, kwargs), [extents, statistics, statistics]


@handles("native_layer_norm_backward", "native_group_norm_backward")
def norm_backward(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """The gradients of weight and bias sum over what counts."""
    extents = run.of(node.args[0])
    if node.target._schema.name.endswith("group_norm_backward"):
        raise Unpadded(f"{node.target} counts its images")
    if any(extents[len(extents) - len(node.args[2]) :]):
        raise Unpadded("a norm over a dynamic dimension")
    gradient = with_array(args[0], masked(args[0].array, extents, range(len(extents)), 0))
    image = with_array(args[1], masked(args[1].array, run.of(node.args[1]), range(len(extents)), 0))
    return run.plain(node, [gradient, image, *args[2:]], kwargs), [extents, (None,) * 9, (None,) * 9]
