"""Arrays in and out of devices, by device index. Importing this starts nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torus.runtime.client import client, device

if TYPE_CHECKING:
    import numpy as np


def from_dlpack(capsule: Any, device_index: int = 0) -> Any:
    """The array over the memory of a DLPack capsule, not copied.

    Raises ValueError for what would need a copy: an address that is not 64-byte aligned, strides that are not
    row-major.
    """
    started = client()
    return started.adapter.from_dlpack(capsule, device(device_index), started.placements[device_index])


def to_dlpack(array: Any) -> Any:
    """A DLPack capsule over the memory of `array`, not copied. Its consumer can write to it."""
    return client().adapter.to_dlpack(array)


def from_numpy(values: np.ndarray[Any, Any], device_index: int = 0, copy: bool = True) -> Any:
    """The array with the values and dtype of `values`, of any byte order and strides.

    With ``copy=False`` the array may keep using the memory of `values`, which must then not change.
    """
    import numpy as np

    started = client()
    values = np.asarray(values)
    native = np.asarray(values, values.dtype.newbyteorder("="), order="C")
    return started.adapter.from_numpy(native, device(device_index), started.placements[device_index], copy)


def word_uploader(words: int, device_index: int) -> tuple[Any, tuple[Any, ...], int]:
    """A bound call that sends `words` uint32 to a device: the call, its arguments, and the address where it reads the
    words.

    The call copies before it returns, so the words may be overwritten at once. The fastest way in for a few scalars.
    """
    started = client()
    return started.adapter.word_uploader(words, device(device_index), started.placements[device_index])


def to_numpy(array: Any) -> np.ndarray[Any, Any]:
    """The values of `array`, read-only; without a copy where its memory is the host's. Waits for them."""
    values: np.ndarray[Any, Any] = client().adapter.to_numpy(array)
    return values


def read_pair(array: Any) -> tuple[int, int]:
    """The two values of an int64 `array`. Waits for them."""
    first, second = client().adapter.read_pair(array)
    return first, second


def copy_to_device(array: Any, device_index: int) -> Any:
    """A copy of `array` on another device, or a new one on its own."""
    started = client()
    return started.adapter.copy_to_device(array, device(device_index), started.placements[device_index])


def block_until_ready(arrays: Sequence[Any]) -> None:
    """Wait for every array. Raises what its computation raised."""
    client().adapter.block_until_ready(arrays)


def is_ready(array: Any) -> bool:
    """Whether the value of `array` has been computed."""
    return bool(client().adapter.is_ready(array))
