"""Mixed precision. The policies are PyTorch's own, as its CUDA device has them.

The default dtype is a setting of each thread in PyTorch: bfloat16 in the thread that imports torus, float16 in the
others, unless they name one. `autocast` below names it.
"""

from __future__ import annotations

from typing import Any

import torch

from torus.backend import NAME


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast("tpu", dtype=...)`` accepts."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: every platform computes in bfloat16."""
    return True


class autocast(torch.amp.autocast):
    """``torch.autocast("tpu", ...)``; bfloat16 unless told otherwise."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.bfloat16, cache_enabled: bool = True) -> None:
        super().__init__(NAME, enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("tpu", ...)``. bfloat16 does not need it, float16 does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(NAME, *args, **kwargs)
