"""Which device an argument means."""

from __future__ import annotations

import torch

from torus import _C
from torus.backend import NAME

Device = torch.device | str | int | None


def index_of(device: Device = None) -> int:
    """The index of an int, ``"tpu"``, ``"tpu:1"``, a `torch.device`, or None (the current device).

    Raises ValueError for a device of another type, RuntimeError for an index that does not exist, TypeError otherwise.
    """
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type != NAME:
            raise ValueError(f"expected a {NAME} device, got {device}")
        device = device.index
    if device is None:
        return _C.current_device()
    _check_is_int(device)
    if not 0 <= device < _C.device_count():
        raise RuntimeError(
            f"{NAME}:{device} does not exist: this process has {_C.device_count()} {NAME} device(s). "
            f"On the host platform TORUS_DEVICE_COUNT sets how many there are."
        )
    return device


def _check_is_int(device: object) -> None:
    if not isinstance(device, int) or isinstance(device, bool):
        name = type(device).__name__
        raise TypeError(f"expected an int, a str, a torch.device or None for a {NAME} device, got {name}")


def optional_index_of(device: Device) -> int:
    """As `index_of`, but None and negative ints mean "leave the current device" and give -1."""
    if device is None or (isinstance(device, int) and device < 0):
        return -1
    return index_of(device)
