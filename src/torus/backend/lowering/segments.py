"""Reductions over runs of consecutive elements along one axis. The axes before it have runs of their own."""

from __future__ import annotations

import math
from typing import Any

from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.reductions import isnan, widen
from torus.backend.lowering.registry import OutSpec, lowers

_START = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


class _Runs:
    """Where the runs lie. `number` of each element (the count of runs for one in none), `lengths` of each run."""

    def __init__(self, data: Any, lengths: Any, offsets: Any, axis: int):
        self.batch, self.size = data.shape[:axis], data.shape[axis]
        rows, self.rest = math.prod(self.batch), data.shape[axis + 1 :]
        self.data = widen(data).reshape(rows, self.size, math.prod(self.rest))
        if lengths is not None:
            self.lengths = lengths.reshape(rows, lengths.shape[-1])
            ends = jnp.cumsum(self.lengths, 1)
            starts = ends - self.lengths
        else:
            offsets = offsets.reshape(rows, offsets.shape[-1])
            starts, ends = offsets[:, :-1], offsets[:, 1:]
            self.lengths = ends - starts
        self.count = self.lengths.shape[1]
        position = lax.iota(ends.dtype, self.size)
        inside = (position >= starts[..., None]) & (position < ends[..., None])
        self.number = jnp.where(jnp.any(inside, 1), jnp.argmax(inside, 1), self.count) if self.count else position * 0
        self.number = jnp.broadcast_to(self.number, (rows, self.size))

    def reduce(self, values: Any, how: str, start: Any) -> Any:
        """One row of `start`, combined with the elements of its run, for each run."""
        result = jnp.full((values.shape[0], self.count, values.shape[2]), 0, values.dtype) + start
        place = result.at[lax.iota("int32", values.shape[0])[:, None], self.number]
        combine = {"sum": place.add, "mean": place.add, "prod": place.multiply, "max": place.max, "min": place.min}[how]
        return combine(values, mode="drop")

    def spread(self, values: Any) -> Any:
        """The value of its run for each element; 0 outside of all runs."""
        rows = lax.iota("int32", values.shape[0])[:, None]
        return values.at[rows, self.number].get(mode="fill", fill_value=0)

    def per_run(self, values: Any) -> Any:
        return widen(values).reshape(self.data.shape[0], self.count, self.data.shape[2])


def _start(reduce: str, initial: Any, dtype: Any) -> Any:
    return jnp.asarray(_START[reduce] if initial is None else initial).astype(dtype)


@lowers("aten::segment_reduce")
def segment_reduce(
    data: Any,
    reduce: str,
    *,
    lengths: Any = None,
    indices: Any = None,
    offsets: Any = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Any:
    """Empty runs give what they start with: `initial`, by default the neutral element, NaN for means."""
    runs = _Runs(data, lengths, offsets, axis % data.ndim)
    result = runs.reduce(runs.data, reduce, _start(reduce, initial, runs.data.dtype))
    if reduce == "mean":
        divisor = runs.lengths[..., None].astype(result.dtype)
        empty = jnp.nan if initial is None else result
        result = jnp.where(divisor > 0, result / jnp.maximum(divisor, 1), empty)
    return result.reshape(*runs.batch, runs.count, *runs.rest).astype(data.dtype)


@lowers("aten::_segment_reduce_backward")
def segment_reduce_backward(
    grad: Any,
    output: Any,
    data: Any,
    reduce: str,
    *,
    lengths: Any = None,
    offsets: Any = None,
    axis: int = 0,
    initial: Any = None,
    out: OutSpec,
) -> Any:
    """Extremes share the gradient among the elements that equal them, NaN included."""
    runs = _Runs(data, lengths, offsets, axis % data.ndim)
    grad, output, x = runs.per_run(grad), runs.per_run(output), runs.data
    if reduce == "mean":
        grad = grad / jnp.maximum(runs.lengths, 1)[..., None].astype(grad.dtype)
    slope = runs.spread(grad)
    if reduce in ("max", "min"):
        hit = (x == runs.spread(output)) | isnan(x)
        shared = runs.spread(runs.reduce(hit.astype(x.dtype), "sum", jnp.zeros((), x.dtype)))
        slope = jnp.where(hit, slope / jnp.maximum(shared, 1), 0)
    elif reduce == "prod":
        slope = slope * _product_of_others(runs, output, _start(reduce, initial, x.dtype))
    return slope.reshape(data.shape)


def _product_of_others(runs: _Runs, output: Any, start: Any) -> Any:
    """For each element, `start` times the other elements of its run."""
    x = runs.data
    zero = (x == 0) | isnan(x)
    zeros = runs.spread(runs.reduce(zero.astype(x.dtype), "sum", jnp.zeros((), x.dtype)))
    others = runs.spread(runs.reduce(jnp.where(zero, jnp.ones((), x.dtype), x), "prod", start))
    others = jnp.where(zeros == 1, others, 0)
    return jnp.where(zero, others, runs.spread(output) / jnp.where(zero, jnp.ones((), x.dtype), x))


@lowers("aten::_jagged_to_padded_dense_forward")
def jagged_to_padded_dense(values: Any, offsets: Any, max_lengths: Any, padding_value: Any = 0.0) -> Any:
    """The pieces of `values` (total, ...) between offsets (batch + 1) as rows (batch, max length, ...) with padding."""
    if len(offsets) != 1:
        raise RuntimeError(f"one jagged dimension is supported, not {len(offsets)}")
    (length,) = max_lengths
    starts, ends = offsets[0][:-1, None], offsets[0][1:, None]
    place = starts + jnp.arange(length)[None]
    rows = jnp.take(values, jnp.clip(place, 0, max(values.shape[0] - 1, 0)), axis=0)
    inside = (place < ends).reshape(*place.shape, *[1] * (values.ndim - 1))
    return jnp.where(inside, rows, padding_value.astype(values.dtype))
