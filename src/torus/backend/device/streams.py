"""Streams and events. The runtime orders work by its data, so a stream is a name; events tell the truth."""

from __future__ import annotations

from types import TracebackType

import torch

from torus import _C
from torus.backend.device.indices import Device, index_of

Stream = torch.Stream
Event = torch.Event


def current_stream(device: Device = None) -> torch.Stream:
    """The stream that this thread has chosen on a device (default: the current one)."""
    return torch.accelerator.current_stream(index_of(device))


def default_stream(device: Device = None) -> torch.Stream:
    """The stream on which work runs unless another was chosen."""
    return torch.Stream(stream_id=0, device_index=index_of(device), device_type=_device_type())


def set_stream(stream: torch.Stream | None) -> None:
    """Choose the stream of this thread, and make its device the current one; None does nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


class stream:
    """``with torch.tpu.stream(s):`` chooses a stream inside the block; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._device = -1
        self._replaced: torch.Stream | None = None

    def __enter__(self) -> torch.Stream | None:
        if self.stream is not None:
            self._device = _C.current_device()
            self._replaced = current_stream(self.stream.device)
            set_stream(self.stream)
        return self.stream

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._replaced is not None:
            set_stream(self._replaced)
            _C.set_device(self._device)


StreamContext = stream


def _device_type() -> int:
    return int(torch._C._autograd.DeviceType.PrivateUse1.value)
