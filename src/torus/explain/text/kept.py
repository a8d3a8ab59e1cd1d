"""Modules made for one text, kept for the next one of the same shapes: what was captured of them serves both."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

from torch import nn

Made = TypeVar("Made", bound=nn.Module)


class Kept:
    """The first module of each kind and shapes. A later one gives it the values of its own tensors, and is dropped."""

    def __init__(self) -> None:
        self._modules: dict[Hashable, nn.Module] = {}

    def of(self, module: Made) -> Made:
        """The kept module in the place of this one: they differ in the values of tensors alone."""
        if not getattr(module, "reusable", True):
            return module
        kept = self._modules.setdefault(_key(module), module)
        if kept is not module:
            for name, tensor in module.named_buffers(recurse=False):
                kept.get_buffer(name).copy_(tensor)
        return kept  # type: ignore[return-value]


def _key(module: nn.Module) -> Hashable:
    plain = tuple((name, value) for name, value in vars(module).items() if isinstance(value, int | float | str | None))
    tensors = tuple((name, t.shape, t.dtype, t.device) for name, t in module.named_buffers(recurse=False))
    return type(module), plain, tensors, tuple(id(child) for child in module.children())
