"""What is lost when a window goes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torus.explain.coalitions.game import BATCH, in_batches, result_dtype
from torus.explain.function import Function
from torus.explain.methods import Attribution, Run, of_values
from torus.explain.points import Points, repeat

Window = tuple[int, ...]


@of_values
def occlusion(
    function: Function,
    points: Points,
    baselines: Points,
    run: Run,
    *,
    window: Window | Sequence[Window | None],
    stride: int | Window | Sequence[int | Window | None] | None = None,
) -> Attribution:
    """The value at the inputs less the value with a window at its baseline, averaged over the windows of an element.

    `window` is the shape of a window in one example, such as (3, 16, 16), and `stride` how far it moves along each
    dimension, half the window if not given; the last window along a dimension ends with it. With several inputs, both
    are lists, with None for an input that stays as it is. Raises ValueError for a window that does not fit.

    Zeiler, Fergus: Visualizing and understanding convolutional networks (2014).
    """
    shapes, strides = _each(window, stride, points)
    dtype = result_dtype(points)
    everything = in_batches(function, points, 1, 1, lambda rows: points)[0]
    found = []
    for index, (point, shape, step) in enumerate(zip(points, shapes, strides, strict=True)):
        if shape is None:
            found.append(torch.zeros_like(point, dtype=dtype))
            continue
        starts = _starts(tuple(point.shape[1:]), shape, step)
        make = _windows(points, baselines, index, starts, shape)
        lost = everything - in_batches(function, points, len(starts), run.chunk or BATCH, make)
        found.append(_averaged(tuple(point.shape), starts, shape, lost).to(point.device, dtype))
    return Attribution(tuple(found))


def _each(window: Any, stride: Any, points: Points) -> tuple[list[Window | None], list[Window | int | None]]:
    """A window and a stride for each input."""
    several = any(not isinstance(size, int) for size in window)
    shapes = list(window) if several else [tuple(window)]
    strides = list(stride) if several and isinstance(stride, Sequence) else [stride] * len(shapes)
    if not len(shapes) == len(strides) == len(points):
        raise ValueError(f"there are {len(shapes)} windows and {len(strides)} strides for {len(points)} inputs")
    return shapes, strides


def _starts(sizes: Window, shape: Window, step: int | Window | None) -> torch.Tensor:
    """Where windows begin, (windows, dimensions); together they cover everything."""
    if len(shape) != len(sizes) or not all(0 < width <= size for width, size in zip(shape, sizes, strict=True)):
        raise ValueError(f"a window of shape {shape} does not fit an example of shape {sizes}")
    steps = (
        [max(1, width // 2) for width in shape]
        if step is None
        else [step] * len(sizes)
        if isinstance(step, int)
        else list(step)
    )
    if len(steps) != len(sizes) or not all(0 < s <= width for s, width in zip(steps, shape, strict=True)):
        raise ValueError(f"a stride of {step} does not fit windows of shape {shape}: elements would be left out")
    along = [
        [*range(0, size - width, step), size - width] for size, width, step in zip(sizes, shape, steps, strict=True)
    ]
    return torch.tensor(list(itertools.product(*along)))


def _windows(
    points: Points, baselines: Points, index: int, starts: torch.Tensor, shape: Window
) -> Callable[[torch.Tensor], Points]:
    """Copies of the points with windows of one input at the baseline."""
    point = points[index]

    def make(rows: torch.Tensor) -> Points:
        first = starts[rows].to(point.device)
        inside = torch.ones((), dtype=torch.bool, device=point.device)
        for axis, (size, width) in enumerate(zip(point.shape[1:], shape, strict=True)):
            begin = first[:, axis].reshape(-1, 1, *[1] * (point.ndim - 1))
            place = torch.arange(size, device=point.device).reshape(size, *[1] * (point.ndim - 2 - axis))
            inside = inside & (place >= begin) & (place < begin + width)
        changed = torch.where(inside, baselines[index], point).flatten(0, 1)
        return tuple(changed if i == index else repeat((p,), len(rows))[0] for i, p in enumerate(points))

    return make


def _averaged(sizes: tuple[int, ...], starts: torch.Tensor, shape: Window, lost: torch.Tensor) -> torch.Tensor:
    """What windows lost (windows, b), averaged over the windows of each element, on the host."""
    total, count = torch.zeros(sizes, dtype=torch.float64), torch.zeros(sizes[1:])
    for start, loss in zip(starts.tolist(), lost, strict=True):
        place = tuple(slice(first, first + width) for first, width in zip(start, shape, strict=True))
        total[(slice(None), *place)] += loss.reshape(-1, *[1] * len(shape))
        count[place] += 1
    return total / count
