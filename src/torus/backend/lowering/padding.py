"""Padding by a constant, by reflection and by replication, with the gradients.

Amounts come last dimension first, as pairs of before and after; negative amounts crop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from torus.backend.lowering.apply import cast
from torus.backend.lowering.axes import opmath, sum_taps, take_static, transpose_taps
from torus.backend.lowering.lazy import lax
from torus.backend.lowering.registry import lowers

Ints = Sequence[int]
Table = Callable[[int, int, int], np.ndarray]


@lowers("aten::constant_pad_nd", fits=("value",))
def constant_pad_nd(self: Any, pad: Ints, value: Any = 0) -> Any:
    config = [(0, 0, 0)] * self.ndim
    for i in range(len(pad) // 2):
        config[self.ndim - 1 - i] = (pad[2 * i], pad[2 * i + 1], 0)
    return lax.pad(self, cast(value, str(self.dtype)), config)


@lowers("aten::reflection_pad1d", "aten::reflection_pad2d", "aten::reflection_pad3d")
def reflection_pad(self: Any, padding: Ints) -> Any:
    return _pad(self, padding, _reflected)


@lowers("aten::reflection_pad1d_backward", "aten::reflection_pad2d_backward", "aten::reflection_pad3d_backward")
def reflection_pad_backward(grad_output: Any, self: Any, padding: Ints) -> Any:
    return _pad_backward(grad_output, self, padding, _reflected)


@lowers("aten::replication_pad1d", "aten::replication_pad2d", "aten::replication_pad3d")
def replication_pad(self: Any, padding: Ints) -> Any:
    return _pad(self, padding, _replicated)


@lowers("aten::replication_pad1d_backward", "aten::replication_pad2d_backward", "aten::replication_pad3d_backward")
def replication_pad_backward(grad_output: Any, self: Any, padding: Ints) -> Any:
    return _pad_backward(grad_output, self, padding, _replicated)


def _reflected(size: int, low: int, high: int) -> np.ndarray:
    """For each padded position, the element that it shows."""
    i = np.abs(np.arange(-low, size + high))
    return np.where(i >= size, 2 * (size - 1) - i, i)


def _replicated(size: int, low: int, high: int) -> np.ndarray:
    return np.clip(np.arange(-low, size + high), 0, size - 1)


def _pad(x: Any, padding: Ints, table: Table) -> Any:
    for i in range(len(padding) // 2):
        ax = x.ndim - 1 - i
        x = take_static(x, ax, table(x.shape[ax], padding[2 * i], padding[2 * i + 1]))
    return x


def _pad_backward(grad: Any, x: Any, padding: Ints, table: Table) -> Any:
    grad = opmath(grad)
    for i in range(len(padding) // 2):
        ax, size = x.ndim - 1 - i, x.shape[x.ndim - 1 - i]
        back, _, valid = transpose_taps(table(size, padding[2 * i], padding[2 * i + 1])[:, None], size)
        grad = sum_taps(grad, ax, back, valid=valid)
    return grad
