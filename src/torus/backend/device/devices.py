"""Devices: how many there are, what they are, which one is current."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch

from torus import _C, runtime
from torus.backend import NAME
from torus.backend.device import forking
from torus.backend.device.indices import Device, index_of, optional_index_of
from torus.backend.device.memory import mem_get_info
from torus.backend.lowering.dtypes import ITEMSIZE, from_name


@dataclass(frozen=True)
class DeviceProperties:
    """What `get_device_properties` tells. `platform` is ``"cpu"``, ``"cuda"`` or ``"tpu"``; memory is in bytes.
    `simulates` is the slice that the host stands in for, such as ``"v6e:2x2"``.
    """

    name: str
    platform: str
    index: int
    total_memory: int
    simulates: str | None = None


def is_available() -> bool:
    """Whether there is a device to use. Starts nothing; False where the settings ask for one that is not there."""
    try:
        return runtime.expected_device_count() > 0
    except (RuntimeError, ValueError):
        return False


def device_count() -> int:
    """How many devices this process has. Starts nothing."""
    return _C.device_count()


def init() -> None:
    """Start the client now, not at the first use. Raises RuntimeError in a forked child of a process that has one."""
    forking.check()
    runtime.device_count()


def is_initialized() -> bool:
    """Whether the client runs."""
    return runtime.is_started() and not forking.in_bad_fork()


def current_device() -> int:
    """The index of the current device of this thread."""
    return _C.current_device()


def set_device(device: Device) -> None:
    """Make a device the current one of this thread; a negative index does nothing."""
    index = optional_index_of(device)
    if index >= 0:
        _C.set_device(index)


def synchronize(device: Device = None) -> None:
    """Wait for all work of a device (default: the current one). Raises what failed in it."""
    forking.check()
    torch.accelerator.synchronize(index_of(device))


class device:
    """``with torch.tpu.device(1):`` makes a device the current one; None and negative indices change nothing."""

    def __init__(self, device: Device) -> None:
        self.idx = optional_index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _C.exchange_device(self.idx)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _C.exchange_device(self.prev_idx)


class device_of(device):
    """``with torch.tpu.device_of(tensor):`` makes the device of a tensor or storage the current one, if it is a tpu."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device.index if obj.device.type == NAME else -1)


def get_device_name(device: Device = None) -> str:
    """What the device really is: ``"XLA:CPU host"``, ``"NVIDIA H200"``, ``"TPU v6 lite"``."""
    forking.check()
    return runtime.device_name(index_of(device))


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Name, platform and memory of a device."""
    index = index_of(device)
    name = get_device_name(index)
    return DeviceProperties(name, runtime.platform_name(), index, mem_get_info(index)[1], runtime.simulated_slice())


def get_device_capability(device: Device = None) -> dict[str, Any]:
    """What a device can do: its ``"platform"`` and the dtypes that it stores, ``"supported_dtypes"``."""
    index_of(device)
    return {"platform": runtime.platform_name(), "supported_dtypes": {from_name(name) for name in ITEMSIZE}}


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Whether arrays go from one device to the other without a copy in between: always, within one client."""
    return index_of(device) != index_of(peer_device)
