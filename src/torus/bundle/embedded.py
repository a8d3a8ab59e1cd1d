"""What the C runner (c/torus_bundle.c) calls: tensors are tuples of plain objects, ``(name, dtype, sizes, data)``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from torus.bundle import arguments
from torus.bundle.bundle import Bundle
from torus.bundle.errors import InputError
from torus.bundle.manifest import Tensor
from torus.bundle.weights import Array, dtype

Given = tuple[str | None, str, tuple[int, ...], memoryview]
Described = tuple[str, str, tuple[int, ...], Array | None]


def load(path: str) -> Bundle:
    """`Bundle.load`."""
    return Bundle.load(path)


def inputs(bundle: Bundle) -> list[Described]:
    """What the bundle takes; -1 stands for a size that varies."""
    return [_described(tensor) for tensor in bundle.manifest.inputs]


def outputs(bundle: Bundle) -> list[Described]:
    """What the bundle gives; -1 stands for a size that varies."""
    return [_described(tensor) for tensor in bundle.manifest.outputs]


def run(bundle: Bundle, given: Iterable[Given]) -> list[Described]:
    """The outputs, their data as flat bytes. An input without a name is the one of its position.

    Raises InputError for what the bundle does not take.
    """
    named: dict[str, Any] = {}
    for index, (name, kind, sizes, data) in enumerate(given):
        name = name if name is not None else _name(bundle, index)
        if name in named:
            raise InputError(f"the input {name} was given twice")
        named[name] = _array(name, kind, sizes, data)
    results = bundle.run_flat(arguments.collect(bundle.manifest, (), named))
    return [
        (tensor.name, tensor.dtype, values.shape, np.ascontiguousarray(values).reshape(-1).view(np.uint8))
        for tensor, values in zip(bundle.manifest.outputs, results)
    ]


def _described(tensor: Tensor) -> Described:
    return tensor.name, tensor.dtype, tuple(s if isinstance(s, int) else -1 for s in tensor.sizes), None


def _name(bundle: Bundle, index: int) -> str:
    known = bundle.manifest.inputs
    if index >= len(known):
        raise InputError(f"an input without a name is number {index + 1}, and the bundle takes {len(known)}")
    return known[index].name


def _array(name: str, kind: str, sizes: tuple[int, ...], data: memoryview) -> Array:
    try:
        return np.asarray(data).view(dtype(kind)).reshape(sizes)
    except (TypeError, ValueError) as error:
        raise InputError(f"the input {name} is not {kind} {sizes}: {data.nbytes} bytes were given") from error
