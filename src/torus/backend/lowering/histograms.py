"""Histograms: counts, or sums of weights, of the elements between edges. The last bin holds its upper edge too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torus.backend.lowering.apply import cast
from torus.backend.lowering.factories import spaced
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import Bounds, Order, OutSpec, lowers


def _histogram_range(x: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """The range asked for; that of the data if it is empty; one around a single value."""
    data = (jnp.min(x), jnp.max(x)) if x.size else (low, high)
    low, high = jnp.where(low == high, data[0], low), jnp.where(low == high, data[1], high)
    return jnp.where(low == high, low - 1, low), jnp.where(low == high, high + 1, high)


_FINITE = Bounds("torch.histc: the range is not finite: ", open=True)


@lowers(
    "aten::histc",
    bounds={"min": _FINITE, "max": _FINITE},
    order=Order("min", "max", False, "torch.histc: max must be larger than min"),
    fits=("min", "max"),
)
def histc(x: Any, bins: int = 100, min: Any = 0, max: Any = 0, *, out: OutSpec) -> Any:
    """Integers take part exactly, in int64."""
    work = out.dtype if jnp.issubdtype(x.dtype, jnp.floating) else "int64"
    work = "float32" if work in ("float16", "bfloat16") else work
    x = cast(x.reshape(-1), work)
    low, high = _histogram_range(x, jnp.asarray(min).astype(work), jnp.asarray(max).astype(work))
    place = (x - low) * bins // (high - low) if work == "int64" else (x - low) / (high - low) * bins
    index = jnp.minimum(lax.convert_element_type(place, "int32"), bins - 1)
    counted = (x >= low) & (x <= high)
    return jnp.zeros(bins, "int32").at[jnp.where(counted, index, bins)].add(1, mode="drop")


def _edges(values: Any, bins: int, low: Any, high: Any) -> Any:
    """`bins` + 1 evenly spaced edges over the range asked for, or over that of the values (0 to 1 for none)."""
    if low is None:
        low, high = (jnp.min(values), jnp.max(values)) if values.size else (0.0, 1.0)
    low, high = jnp.asarray(low, "float64"), jnp.asarray(high, "float64")
    margin = jnp.where(low == high, 0.5, 0.0)
    edges = spaced(low - margin, high + margin, bins + 1, OutSpec((bins + 1,), str(values.dtype)))
    return edges.astype(values.dtype)


def _place(values: Any, edges: Any) -> Any:
    """The bin of each value; the number of bins for those outside, NaN among them."""
    bins = edges.shape[0] - 1
    place = jnp.searchsorted(edges, values, side="right") - 1
    inside = (values >= edges[0]) & (values <= edges[-1])
    return jnp.where(inside, jnp.minimum(place, bins - 1), bins)


def _histogram(points: Any, edges: Sequence[Any], weight: Any, density: bool) -> Any:
    """The histogram of the rows of `points`, which have a coordinate for each list of edges."""
    sizes = tuple(e.shape[0] - 1 for e in edges)
    places = tuple(_place(points[:, i], e) for i, e in enumerate(edges))
    weight = None if weight is None else weight.reshape(-1)
    counts = jnp.zeros(sizes, "int64" if weight is None else weight.dtype)
    counts = counts.at[places].add(1 if weight is None else weight, mode="drop").astype(points.dtype)
    if not density:
        return counts
    counts = counts / jnp.sum(counts)
    for axis, e in enumerate(edges):
        counts = counts / jnp.expand_dims(e[1:] - e[:-1], [a for a in range(len(sizes)) if a != axis])
    return counts


def _points(x: Any) -> Any:
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _all_edges(x: Any, bins: Sequence[int], range: Sequence[float] | None) -> list[Any]:
    points = _points(x)
    limits = [(None, None)] * len(bins) if range is None else list(zip(range[::2], range[1::2]))
    return [_edges(points[:, i], n, *limits[i]) for i, n in enumerate(bins)]


@lowers("aten::histogram.bins_tensor")
def histogram(x: Any, bins: Any, *, weight: Any = None, density: bool = False) -> Any:
    return _histogram(x.reshape(-1, 1), [bins], weight, density), bins


@lowers("aten::histogram.bin_ct")
def histogram_of_count(
    x: Any, bins: int = 100, *, range: Sequence[float] | None = None, weight: Any = None, density: bool = False
) -> Any:
    points = x.reshape(-1, 1)
    edges = _all_edges(points, [bins], range)
    return _histogram(points, edges, weight, density), edges[0]


@lowers("aten::_histogramdd_from_bin_tensors")
def histogram_of_points(x: Any, bins: Sequence[Any], *, weight: Any = None, density: bool = False) -> Any:
    return _histogram(_points(x), bins, weight, density)


@lowers("aten::_histogramdd_from_bin_cts")
def histogram_of_points_in_counts(
    x: Any, bins: Sequence[int], *, range: Sequence[float] | None = None, weight: Any = None, density: bool = False
) -> Any:
    return _histogram(_points(x), _all_edges(x, bins, range), weight, density)


@lowers("aten::_histogramdd_bin_edges")
def histogram_edges(
    x: Any, bins: Sequence[int], *, range: Sequence[float] | None = None, weight: Any = None, density: bool = False
) -> Any:
    """One list of edges for each coordinate, which is one result that is a list."""
    return [_all_edges(x, bins, range)]
