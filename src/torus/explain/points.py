"""Points at which a model is asked for its value and gradient: tuples of tensors whose first dimension runs over rows.

With `b` examples a tuple holds ``n = k * b`` rows, and row `i` belongs to example ``i % b``. Rows are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Points = tuple[torch.Tensor, ...]


def as_points(value: torch.Tensor | Sequence[torch.Tensor], what: str = "inputs") -> Points:
    """A tensor or a sequence of tensors as a tuple. Raises TypeError or ValueError for what is none or empty."""
    points = (value,) if isinstance(value, torch.Tensor) else tuple(value)
    for index, tensor in enumerate(points):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{what}[{index}] is a {type(tensor).__name__}, expected a tensor")
        if tensor.ndim == 0 or len(tensor) != len(points[0]):
            raise ValueError(
                f"{what}[{index}] has shape {tuple(tensor.shape)}; its first dimension must be the number of examples, "
                f"{len(points[0]) if points[0].ndim else 'one or more'}"
            )
    if not points or len(points[0]) == 0:
        raise ValueError(f"{what} is empty: there is nothing to explain")
    return points


def repeat(points: Points, times: int) -> Points:
    """Each row `times` times, all examples in turn."""
    return tuple(tensor.repeat(times, *[1] * (tensor.ndim - 1)) for tensor in points)


def rows(points: Points) -> int:
    """How many rows there are."""
    return len(points[0])


def total(points: Points) -> torch.Tensor:
    """The sum of all elements of each row: shape (n,)."""
    return torch.stack([tensor.flatten(1).sum(1) for tensor in points]).sum(0)


def each(function: Callable[..., torch.Tensor], *points: Points) -> Points:
    """`function` of the corresponding tensors of several tuples."""
    return tuple(function(*tensors) for tensors in zip(*points, strict=True))


def repeat_argument(value: Any, examples: int, times: int) -> Any:
    """An argument that is not explained, for `times` as many rows: tensors with a row for each example are repeated."""
    if isinstance(value, torch.Tensor) and value.ndim and len(value) == examples and times > 1:
        return value.repeat(times, *[1] * (value.ndim - 1))
    return value


def flat(points: Points) -> torch.Tensor:
    """The elements of all inputs of each row, (n, e), in float32 at least."""
    return torch.cat([tensor.to(torch.promote_types(tensor.dtype, torch.float32)).flatten(1) for tensor in points], 1)


def unflat(elements: torch.Tensor, like: Points) -> Points:
    """Elements (n, e) as tensors like others, with n rows."""
    parts = tuple(elements.split([tensor[0].numel() for tensor in like], 1))
    return each(lambda part, tensor: part.reshape(-1, *tensor.shape[1:]).to(tensor.dtype), parts, like)
