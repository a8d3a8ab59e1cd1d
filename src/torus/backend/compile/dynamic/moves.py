"""Padded operands: what works element by element, and what only moves elements."""

from __future__ import annotations

from typing import Any

from torus.backend.compile.dynamic.extents import Unpadded, broadcast, masked, regroup, reshaped
from torus.backend.compile.dynamic.run import (
    POINTWISE,
    PaddedRun,
    Results,
    axes,
    given,
    handles,
    meta,
    operand_nodes,
    with_array,
)
from torus.backend.lowering.lazy import jnp, lax


@handles(
    POINTWISE,
    *"clone _to_copy copy native_dropout bernoulli masked_fill alias detach lift_fresh_copy uniform normal_functional "
    "convert_element_type".split(),
    aligns=True,
    uniform=True,
)
def pointwise(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Each result element depends on the same place of the operands."""
    operands = [(run.values[n].shape, run.of(n)) for n in operand_nodes(node)]
    try:
        extents = [broadcast(operands, sizes, str(node.target)) for sizes in run.fixed(node)]
    except Unpadded:
        for source in operand_nodes(node):
            run.compact(source)
        operands = [(run.values[n].shape, run.of(n)) for n in operand_nodes(node)]
        extents = [broadcast(operands, sizes, str(node.target)) for sizes in run.fixed(node)]
        args, kwargs = run.arguments(node)
    return run.plain(node, args, kwargs), extents


@handles(
    *"full full_like zeros zeros_like ones ones_like empty empty_like new_full new_zeros new_ones new_empty rand randn "
    "rand_like randn_like randint randint_like empty_strided new_empty_strided".split(),
    uniform=True,
)
def created(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """New tensors."""
    uniform = "rand" not in node.target._schema.name
    extents = run.extents_of(node.meta["val"], uniform)
    return run.plain(node, args, kwargs), [extents]


@handles("arange")
def arange(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """As many numbers as are padded; the first ones are right."""
    (sizes,) = run.fixed(node)
    start = run.number(meta(given(node, "start", 0)))
    step = run.number(meta(given(node, "step", 1)))
    dtype = str(node.meta["val"].dtype).removeprefix("torch.")
    values = jnp.asarray(start) + jnp.asarray(step) * lax.iota("int64", sizes[0])
    return [values.astype(dtype)], [run.extents_of(node.meta["val"])]


@handles("view", "_unsafe_view", "reshape", "view_copy", "_reshape_copy", "_reshape_alias", uniform=True)
def view(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Other sizes for the same elements."""
    source = run.values[node.args[0]]
    (sizes,) = run.fixed(node)
    extents = run.of(node.args[0])
    if any(extents) and all(e is None or e.uniform for e in extents):
        return [source.reshape(sizes)], [run.extents_of(node.meta["val"], uniform=True)]
    try:
        return [source.reshape(sizes)], [reshaped(source.shape, extents, sizes)]
    except Unpadded:
        found = run.extents_of(node.meta["val"])
        return [regroup(source, extents, sizes, found)], [found]


@handles("expand", uniform=True)
def expand(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Dimensions of size 1 repeated; what repeats is the same everywhere."""
    source = node.args[0]
    (sizes,) = run.fixed(node)
    kept = broadcast([(run.values[source].shape, run.of(source))], sizes, "expand")
    new = run.extents_of(node.meta["val"], uniform=True)
    return run.plain(node, args, kwargs), [tuple(k if k is not None else n for k, n in zip(kept, new))]


@handles("permute", "transpose", "t", "permute_copy", uniform=True)
def permute(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Dimensions in another order."""
    extents = run.of(node.args[0])
    name, rank = node.target._schema.name, len(extents)
    if name.endswith(("permute", "permute_copy")):
        order = axes(node.args[1], rank)
    else:
        order = list(range(rank))
        a, b = (0, 1) if name.endswith("::t") else (d % rank for d in node.args[1:3])
        if rank > 1:
            order[a], order[b] = order[b], order[a]
    return run.plain(node, args, kwargs), [tuple(extents[d] for d in order)]


@handles("unsqueeze", uniform=True)
def unsqueeze(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """One more dimension."""
    extents = list(run.of(node.args[0]))
    extents.insert(node.args[1] % (len(extents) + 1), None)
    return run.plain(node, args, kwargs), [tuple(extents)]


@handles("squeeze", uniform=True)
def squeeze(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Without dimensions of size 1, which are never padded."""
    source, extents = run.values[node.args[0]], run.of(node.args[0])
    dims = axes(given(node, "dim"), source.ndim)
    gone = [d for d in dims if source.shape[d] == 1 and extents[d] is None]
    kept = tuple(e for d, e in enumerate(extents) if d not in gone)
    return [source.reshape([s for d, s in enumerate(source.shape) if d not in gone])], [kept]


@handles("slice")
def slice_(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """A stretch of one dimension; from the end on, it begins where the real elements end."""
    source, extents = run.values[node.args[0]], list(run.of(node.args[0]))
    dim = int(given(node, "dim", 0)) % source.ndim
    extent = extents[dim]
    start, step = meta(given(node, "start", 0)), given(node, "step", 1)
    (sizes,) = run.fixed(node)
    length = sizes[dim]
    if extent is None and not run.varies(node.meta["val"].shape[dim]) and isinstance(start, int):
        return run.plain(node, args, kwargs), [tuple(extents)]
    if step != 1:
        raise Unpadded("a slice with a step of a dynamic dimension")
    total = extent.single("a slice") if extent is not None else jnp.asarray(source.shape[dim], "int64")
    first = run.number(start)
    if not (isinstance(first, int) and first >= 0):
        first = jnp.asarray(first, "int64")
        first = jnp.clip(jnp.where(first < 0, first + total, first), 0, total)
    padded = jnp.pad(source, [(0, length if d == dim else 0) for d in range(source.ndim)])
    result = lax.dynamic_slice_in_dim(padded, first, length, dim)
    extents[dim] = run.extents_of(node.meta["val"])[dim]
    if extents[dim] is not None and isinstance(first, int) and first == 0 and length == source.shape[dim]:
        extents[dim] = extent if extent is not None else extents[dim]
    return [result], [tuple(extents)]


@handles("slice_scatter", "select_scatter")
def scatter_slice(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """A stretch of one dimension replaced; from the end on, it begins where the real elements end."""
    target, source = args[0].array, args[1].array
    extents, cut = list(run.of(node.args[0])), run.of(node.args[1])
    dim = int(given(node, "dim", 0)) % target.ndim
    if node.target._schema.name.endswith("select_scatter"):
        source, start = jnp.expand_dims(source, dim), run.number(meta(node.args[3]))
        length: Any = 1
    else:
        start = run.number(meta(given(node, "start", 0)))
        length = source.shape[dim] if cut[dim] is None else cut[dim].single("a slice")
    if given(node, "step", 1) != 1:
        raise Unpadded("a slice with a step of a dynamic dimension")
    extent = extents[dim]
    total = extent.single("a slice") if extent is not None else target.shape[dim]
    first = jnp.asarray(start, "int64")
    first = jnp.clip(jnp.where(first < 0, first + total, first), 0, total)
    room = jnp.zeros([s + (source.shape[d] if d == dim else 0) for d, s in enumerate(target.shape)], target.dtype)
    moved = lax.dynamic_update_slice_in_dim(room, source.astype(target.dtype), first, dim)
    moved = lax.slice_in_dim(moved, 0, target.shape[dim], axis=dim)
    place = lax.broadcasted_iota("int64", target.shape, dim)
    return [jnp.where((place >= first) & (place < first + length), moved, target)], [tuple(extents)]


@handles("select")
def select(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """One place of a dimension, counted from the end of its real part when negative."""
    source, extents = run.values[node.args[0]], list(run.of(node.args[0]))
    dim = node.args[1] % source.ndim
    extent = extents.pop(dim)
    index = run.number(meta(node.args[2]))
    if extent is not None:
        index = jnp.asarray(index, "int64")
        index = jnp.where(index < 0, index + extent.single("a selection"), index)
    elif isinstance(index, int):
        index = index % source.shape[dim]
    return [lax.dynamic_index_in_dim(source, index, dim, keepdims=False)], [tuple(extents)]


@handles("split", "split_with_sizes", "unbind", "chunk")
def split(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Pieces along a dimension that is not dynamic."""
    extents = run.of(node.args[0])
    dim = int(given(node, "dim", 0)) % len(extents)
    if extents[dim] is not None:
        raise Unpadded(f"{node.target} of a dynamic dimension")
    results = run.plain(node, args, kwargs)
    gone = node.target._schema.name.endswith("unbind")
    kept = tuple(e for d, e in enumerate(extents) if d != dim or not gone)
    return results, [kept] * len(results)


@handles("cat")
def cat(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """One after another: each begins where the real elements of the one before end."""
    nodes = [n for n in node.args[0] if run.values[n].shape != (0,)]
    arrays, extents = [run.values[n] for n in nodes], [run.of(n) for n in nodes]
    dim = int(given(node, "dim", 0)) % arrays[0].ndim
    (sizes,) = run.fixed(node)
    others = [
        (
            [s if d != dim else 1 for d, s in enumerate(a.shape)],
            tuple(e if d != dim else None for d, e in enumerate(x)),
        )
        for a, x in zip(arrays, extents)
    ]
    merged = list(broadcast(others, [s if d != dim else 1 for d, s in enumerate(sizes)], "cat"))
    if all(x[dim] is None for x in extents):
        return run.plain(node, args, kwargs), [tuple(merged)]
    dtype = str(node.meta["val"].dtype).removeprefix("torch.")
    result, place = jnp.zeros(sizes, dtype), jnp.asarray(0, "int64")
    for array, x in zip(arrays, extents):
        result = lax.dynamic_update_slice_in_dim(result, array.astype(dtype), place, dim)
        extent = x[dim]
        place = place + (array.shape[dim] if extent is None else extent.single("cat"))
    merged[dim] = run.extents_of(node.meta["val"])[dim]
    return [result], [tuple(merged)]


@handles("constant_pad_nd")
def constant_pad(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """The value beside what is real."""
    run.compact(node.args[0])
    source, extents, pads = run.values[node.args[0]], run.of(node.args[0]), node.args[1]
    dims = [source.ndim - 1 - i for i in range(len(pads) // 2)]
    if not all(isinstance(p, int) for p in pads):
        raise Unpadded("a dynamic amount of padding")
    args = [with_array(args[0], masked(source, extents, dims, given(node, "value", 0))), *args[1:]]
    sized = run.extents_of(node.meta["val"])
    padded = tuple(s if d in dims else e for d, (s, e) in enumerate(zip(sized, extents)))
    return run.plain(node, args, kwargs), [padded]


@handles("flip")
def flip(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Dimensions from their last real element to their first."""
    result, extents = run.values[node.args[0]], run.of(node.args[0])
    for dim in axes(node.args[1], result.ndim):
        extent = extents[dim]
        if extent is None:
            result = jnp.flip(result, dim)
        else:
            place = extent.single("a flip") - 1 - lax.iota("int64", result.shape[dim])
            result = jnp.take(result, jnp.maximum(place, 0), axis=dim)
    return [result], [extents]


@handles("tril", "triu")
def triangle(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Counted from the first row and column."""
    return run.plain(node, args, kwargs), [run.of(node.args[0])]
