"""Weights in a safetensors file, which other tools can read too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from torus.bundle.errors import DamagedBundleError
from torus.bundle.manifest import Weight

Array = np.ndarray[Any, Any]

_NATIVE = frozenset(
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 complex64".split()
)
"""What safetensors reads into NumPy; the others are stored as bytes, with one dimension more."""


def save(path: Path, tensors: Mapping[str, Array]) -> None:
    """Write `tensors` by name."""
    save_file({name: _stored(values) for name, values in tensors.items()}, path)


def load(path: Path, weights: Iterable[Weight]) -> dict[str, Array]:
    """The tensors that `weights` name. Raises DamagedBundleError where they are not as the manifest says."""
    wanted = {weight.tensor: weight for weight in weights}
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: _restored(file.get_tensor(name), weight) for name, weight in wanted.items()}
    except (SafetensorError, ValueError) as error:
        raise DamagedBundleError(f"{path.name} does not hold the weights of the manifest: {error}") from error


def dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a name, ml_dtypes' included."""
    return np.dtype(getattr(ml_dtypes, name, name))


def _stored(values: Array) -> Array:
    values = np.asarray(values, values.dtype.newbyteorder("="), order="C")
    if values.dtype.name in _NATIVE:
        return values
    return values.reshape(*values.shape, 1).view(np.uint8)


def _restored(stored: Array, weight: Weight) -> Array:
    kind = dtype(weight.dtype)
    values = stored if weight.dtype in _NATIVE else stored.view(kind).reshape(stored.shape[:-1])
    if values.dtype != kind or values.shape != weight.sizes:
        raise ValueError(f"{weight.tensor} is {values.dtype} {values.shape}, not {weight.dtype} {weight.sizes}")
    return values
