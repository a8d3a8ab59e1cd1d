"""Copying between tensors of one device. The core calls this rule itself, where a copy is not merely a second owner."""

from __future__ import annotations

from typing import Any

from torus.backend.lowering.registry import lowers


@lowers("aten::_copy_from", mutates=("dst",))
def copy_from(self: Any, dst: Any, non_blocking: bool = False) -> Any:
    return self
