"""Channels-last results of convolutions: PyTorch's meta kernels promise them to some devices, not to this one."""

from __future__ import annotations

import torch

from torus.backend.eager.request import Promise, Request, TensorArg

_CONVOLUTIONS = ("aten::convolution", "aten::convolution_overrideable", "aten::convolution_backward_overrideable")
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def keep_channels_last(request: Request, promises: list[Promise | None]) -> list[Promise | None]:
    """`promises` as other devices keep them: channels last where the input or the weight of a convolution is."""
    if request.op not in _CONVOLUTIONS:
        return promises
    arguments = {name: value for name, _, (kind, value) in request.args if kind == "tensor"}
    if not any(_is_channels_last(request.tensors[arguments[name]]) for name in ("input", "weight")):
        return promises
    return [_in_channels_last(promise) for promise in promises]


def _is_channels_last(tensor: TensorArg) -> bool:
    """Without doubt: what fits both formats (one channel, a 1x1 kernel) counts as contiguous."""
    if len(tensor.sizes) not in _CHANNELS_LAST:
        return False
    meta = torch.empty_strided(tensor.sizes, tensor.strides, device="meta")
    return not meta.is_contiguous() and meta.is_contiguous(memory_format=_CHANNELS_LAST[len(tensor.sizes)])


def _in_channels_last(promise: Promise | None) -> Promise | None:
    if promise is None or len(promise.sizes) not in _CHANNELS_LAST:
        return promise
    meta = torch.empty(promise.sizes, device="meta", memory_format=_CHANNELS_LAST[len(promise.sizes)])
    return promise._replace(strides=tuple(meta.stride()))
