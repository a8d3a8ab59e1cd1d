"""Channels-last results of convolutions: PyTorch's meta kernels promise them to some devices, not to this one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torus.backend.eager.request import Promise, Request

_CONVOLUTIONS = ("aten::convolution", "aten::convolution_overrideable", "aten::convolution_backward_overrideable")
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def keep_channels_last(request: Request, promises: list[Promise | None]) -> list[Promise | None]:
    """`promises` as other devices keep them: channels last where the input or the weight of a convolution is."""
    if request.op not in _CONVOLUTIONS:
        return promises
    arguments = {name: value for name, _, (kind, value) in request.args if kind == "tensor"}
    operands = [request.tensors[arguments[name]] for name in ("input", "weight")]
    if not any(is_channels_last(t.sizes, t.strides) for t in operands):
        return promises
    return [_keep(promise) for promise in promises]


def is_channels_last(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Without doubt: what fits both formats (one channel, a 1x1 kernel) counts as contiguous."""
    if len(sizes) not in _CHANNELS_LAST:
        return False
    meta = torch.empty_strided(sizes, strides, device="meta")
    return not meta.is_contiguous() and meta.is_contiguous(memory_format=_CHANNELS_LAST[len(sizes)])


def in_channels_last(x: torch.Tensor) -> torch.Tensor:
    """`x` in the format, where tensors of its dimension have one."""
    return x.to(memory_format=_CHANNELS_LAST[x.dim()]) if x.dim() in _CHANNELS_LAST else x


def _keep(promise: Promise | None) -> Promise | None:
    if promise is None:
        return None
    return promise._replace(strides=in_channels_last(torch.empty(promise.sizes, device="meta")).stride())
