"""A few lengths for everything, so that a text of a new length runs programs that are there already."""

from __future__ import annotations

from collections.abc import Sequence

import torch

SMALLEST = 8


def rounded(count: int) -> int:
    """The next of 8, 12, 16, 24, 32, 48, ...: at most half of a length is filling, a fifth on average."""
    size = SMALLEST
    while size < count:
        size *= 2
    return size * 3 // 4 if size > SMALLEST and count <= size * 3 // 4 else size


def padded(values: Sequence[int], length: int, filling: int) -> torch.Tensor:
    """Values as one row of that length: (1, length), int64."""
    return torch.tensor([[*values, *[filling] * (length - len(values))]])
