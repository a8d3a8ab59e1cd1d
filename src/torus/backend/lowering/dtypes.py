"""Names of dtypes on both sides: PyTorch's and NumPy's (with ml_dtypes')."""

from __future__ import annotations

import torch

_PAIRS = {
    torch.bool: "bool",
    torch.uint8: "uint8",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.uint16: "uint16",
    torch.uint32: "uint32",
    torch.uint64: "uint64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.complex64: "complex64",
    torch.complex128: "complex128",
    torch.float8_e4m3fn: "float8_e4m3fn",
    torch.float8_e5m2: "float8_e5m2",
    torch.float8_e4m3fnuz: "float8_e4m3fnuz",
    torch.float8_e5m2fnuz: "float8_e5m2fnuz",
    torch.float8_e8m0fnu: "float8_e8m0fnu",
}
NAMES = {name: dtype for dtype, name in _PAIRS.items()}
"""PyTorch's dtype for each name."""

OPMATH = {"float16": "float32", "bfloat16": "float32"}
"""The dtype in which PyTorch computes elementwise ops on half precisions."""

ITEMSIZE = {name: dtype.itemsize for name, dtype in NAMES.items()}


def to_name(dtype: torch.dtype) -> str:
    """``torch.bfloat16`` -> ``"bfloat16"``. Raises TypeError for a dtype that the device does not store."""
    try:
        return _PAIRS[dtype]
    except KeyError:
        raise TypeError(f"the tpu device does not store {dtype}") from None


def from_name(name: str) -> torch.dtype:
    """``"bfloat16"`` -> ``torch.bfloat16``."""
    return NAMES[name]
