"""Padded operands: reading and writing by index."""

from __future__ import annotations

from typing import Any

import torch

from torus.backend.compile.dynamic.extents import Extent, Unpadded, broadcast, masked
from torus.backend.compile.dynamic.run import PaddedRun, Results, any_extent, given, handles, meta, with_array
from torus.backend.lowering.lazy import jnp


def _safe(run: PaddedRun, node: Any, index: Any, size: Extent | None) -> Any:
    """An index operand with 0 where it does not count, and negative ones counted from the end of what is real."""
    extents = run.of(node)
    array = masked(index.array, extents, range(index.array.ndim), 0)
    if size is not None and array.dtype != bool:
        array = jnp.where(array < 0, array + size.single("an index").astype(array.dtype), array)
    return with_array(index, array)


@handles("embedding")
def embedding(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Rows of a table."""
    table = run.of(node.args[0])
    args = [args[0], _safe(run, node.args[1], args[1], table[0]), *args[2:]]
    return run.plain(node, args, kwargs), [(*run.of(node.args[1]), *table[1:])]


@handles("embedding_dense_backward")
def embedding_backward(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Gradients that do not count are zero."""
    extents = run.of(node.args[0])
    gradient = with_array(args[0], masked(args[0].array, extents, range(len(extents)), 0))
    index = _safe(run, node.args[1], args[1], None)
    return run.plain(node, [gradient, index, *args[2:]], kwargs), [(None, extents[-1])]


@handles("gather")
def gather(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """One element of a dimension for each index."""
    dim = node.args[1] % max(1, args[0].array.ndim)
    size = run.of(node.args[0])[dim]
    args = [args[0], args[1], _safe(run, node.args[2], args[2], size), *args[3:]]
    return run.plain(node, args, kwargs), [run.of(node.args[2])]


@handles("index_select")
def index_select(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Chosen places of one dimension."""
    extents = list(run.of(node.args[0]))
    dim = node.args[1] % max(1, len(extents))
    args = [args[0], args[1], _safe(run, node.args[2], args[2], extents[dim])]
    extents[dim] = run.of(node.args[2])[0]
    return run.plain(node, args, kwargs), [tuple(extents)]


@handles("index")
def index(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Elements by tensors of indices."""
    source = run.of(node.args[0])
    used = [(d, n) for d, n in enumerate(node.args[1]) if n is not None]
    if any(meta(n).dtype in (torch.bool, torch.uint8) for _, n in used):
        raise Unpadded("a mask as an index")
    indices = [None if n is None else _safe(run, n, args[1][d], source[d]) for d, n in enumerate(node.args[1])]
    results = run.plain(node, [args[0], indices], kwargs)
    rank = max(len(run.values[n].shape) for _, n in used)
    shape = jnp.broadcast_shapes(*(run.values[n].shape for _, n in used))
    chosen = broadcast([(run.values[n].shape, run.of(n)) for _, n in used], shape, "index")
    places = [d for d, _ in used]
    together = places == list(range(places[0], places[0] + len(places)))
    at = places[0] if together else 0
    rest = [e for d, e in enumerate(source) if d not in places]
    return results, [(*rest[:at], *chosen[:rank], *rest[at:])]


@handles("scatter", "scatter_reduce")
def scatter(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Writes along a dimension: what does not count goes where nothing counts."""
    extents, index = run.of(node.args[0]), run.of(node.args[2])
    dim = node.args[1] % max(1, len(extents))
    own, theirs = extents[dim], index[dim]
    if theirs is not None and (own is None or not own.same(theirs)):
        raise Unpadded(f"{node.target} along a dynamic dimension")
    if any(i is not None and e is None for i, e in zip(index, extents)):
        raise Unpadded(f"{node.target} of a dynamic number of rows")
    safe = _safe(run, node.args[2], args[2], None)
    if theirs is not None:  # where the index ends, the padding of what is written to begins
        last = args[0].array.shape[dim] - 1
        safe = with_array(safe, masked(safe.array, index, [dim], last))
    return run.plain(node, [args[0], args[1], safe, *args[3:]], kwargs), [extents]


@handles("scatter_add", "index_put")
def accumulate(run: PaddedRun, node: Any, args: list[Any], kwargs: dict[str, Any]) -> Results:
    """Adding by index: what does not count adds zero to the first place."""
    extents = run.of(node.args[0])
    name = node.target._schema.name
    if name.endswith("scatter_add"):
        dim = node.args[1] % max(1, len(extents))
        source = run.of(node.args[3])
        cut = tuple(i if i is not None else s for i, s in zip(run.of(node.args[2]), source))
        added = masked(args[3].array, cut, range(len(cut)), 0)
        args = [args[0], args[1], _safe(run, node.args[2], args[2], extents[dim]), with_array(args[3], added)]
        return run.plain(node, args, kwargs), [extents]
    used = [(d, n) for d, n in enumerate(node.args[1]) if n is not None]
    dynamic = any(any_extent(run.of(n)) for _, n in used) or any_extent(run.of(node.args[2]))
    if dynamic and not given(node, "accumulate", False):
        raise Unpadded("a write by index of dynamic length")
    if any(meta(n).dtype in (torch.bool, torch.uint8) for _, n in used):
        raise Unpadded("a mask as an index")
    indices = [None if n is None else _safe(run, n, args[1][d], extents[d]) for d, n in enumerate(node.args[1])]
    shape = jnp.broadcast_shapes(*(run.values[n].shape for _, n in used))
    chosen = broadcast([(run.values[n].shape, run.of(n)) for _, n in used], shape, "index_put")
    values = args[2]
    if dynamic:
        if len(used) != len(extents) and used[0][0] != 0:
            raise Unpadded("a write by index of dynamic length in the middle of a tensor")
        array = jnp.broadcast_to(values.array, (*shape, *args[0].array.shape[len(used) :]))
        values = with_array(values, masked(array, (*chosen, *extents[len(used) :]), range(array.ndim), 0))
    return run.plain(node, [args[0], indices, values, *args[3:]], kwargs), [extents]
