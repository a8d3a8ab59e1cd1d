"""A NumPy view of the memory behind a DLPack capsule; `numpy.from_dlpack` lacks the extended dtypes."""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from typing import Any

import ml_dtypes
import numpy as np

_CPU, _CUDA_HOST = 1, 3
_KINDS = {0: "int", 1: "uint", 2: "float", 5: "complex"}
_FIXED = {
    4: "bfloat16",
    6: "bool",
    10: "float8_e4m3fn",
    11: "float8_e4m3fnuz",
    12: "float8_e5m2",
    13: "float8_e5m2fnuz",
    14: "float8_e8m0fnu",
}
"""Type codes of DLPack 1.1 that say the width themselves."""

_TENSOR = struct.Struct("@PiiiBBHPPQ")
"""DLTensor: data, device type, device id, rank, type code, bits, lanes, sizes, strides, byte offset."""

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


class _Memory:
    """Memory that NumPy reads in place. The capsule, not consumed, frees it when it dies."""

    __slots__ = ("__array_interface__", "capsule")

    def __init__(self, capsule: Any, address: int, size: int) -> None:
        self.capsule = capsule
        self.__array_interface__ = {"data": (address, True), "shape": (size,), "typestr": "|u1", "version": 3}


def view_capsule(capsule: Any) -> np.ndarray[Any, Any]:
    """The values behind a capsule named ``dltensor``, in place and read-only; they keep the capsule, not consumed.

    Raises ValueError if they are not on the host, not row-major, or of a dtype that NumPy and ml_dtypes do not have.
    """
    tensor = ctypes.string_at(_pointer(capsule, b"dltensor"), _TENSOR.size)
    data, device, _, rank, code, bits, lanes, sizes, strides, offset = _TENSOR.unpack(tensor)
    if device not in (_CPU, _CUDA_HOST):
        raise ValueError(f"this memory is not on the host (DLPack device type {device})")
    shape = _integers(sizes, rank)
    if strides and not _is_row_major(shape, _integers(strides, rank)):
        raise ValueError("this memory cannot be shared, copy it: its strides are not row-major")
    kind = _dtype(code, bits, lanes)
    size = math.prod(shape) * kind.itemsize
    if size == 0:
        empty = np.zeros(shape, kind)
        empty.flags.writeable = False
        return empty
    return np.asarray(_Memory(capsule, data + offset, size)).view(kind).reshape(shape)


def _integers(address: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"@{count}q", ctypes.string_at(address, 8 * count)) if count else ()


@functools.cache
def _dtype(code: int, bits: int, lanes: int) -> np.dtype[Any]:
    name = _FIXED.get(code) or f"{_KINDS.get(code, 'code')}{bits}"
    try:
        if lanes != 1:
            raise TypeError
        return np.dtype(getattr(ml_dtypes, name, name))
    except TypeError:
        raise ValueError(f"no dtype for DLPack type {code} of {bits} bits and {lanes} lanes") from None


def _is_row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size > 1 and stride != expected:
            return 0 in shape
        expected *= size
    return True
