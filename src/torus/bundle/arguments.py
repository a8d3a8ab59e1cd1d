"""From what a caller gives to the arrays of one program, with an error for each way in which they do not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from torus.bundle.errors import InputError
from torus.bundle.manifest import Manifest, Program, Tensor
from torus.bundle.weights import Array


def collect(manifest: Manifest, positional: Sequence[Any], named: Mapping[str, Any]) -> list[Array]:
    """The inputs in the manifest's order, of the right dtypes.

    `positional` may be a single dict of them by name. Raises InputError.
    """
    only = positional[0] if len(positional) == 1 else None
    if isinstance(only, Mapping):
        positional, named = [], {**only, **named}
    names = [tensor.name for tensor in manifest.inputs]
    if len(positional) > len(names):
        raise InputError(f"{len(positional)} inputs were given; {_takes(manifest)}")
    given = dict(zip(names, positional))
    twice = given.keys() & named.keys()
    if twice:
        raise InputError(f"the input {min(twice)} was given twice")
    given |= named
    unknown = [name for name in given if name not in names]
    missing = [name for name in names if name not in given]
    if unknown:
        raise InputError(f"there is no input {unknown[0]}; {_takes(manifest)}")
    if missing:
        raise InputError(f"the input {missing[0]} is missing; {_takes(manifest)}")
    return [_array(tensor, given[tensor.name]) for tensor in manifest.inputs]


def choose(manifest: Manifest, inputs: Sequence[Array], platform: str) -> Program:
    """The program for inputs of these sizes, rather one made for them than one for any, and for `platform` if there is.

    Raises InputError for sizes that the model does not take, or that it has no program for.
    """
    bound: dict[str, int] = {}
    for tensor, values in zip(manifest.inputs, inputs):
        _bind(manifest, tensor, values.shape, bound)
    sizes = tuple(values.shape for values in inputs)
    fitting = [program for program in manifest.programs if program.inputs == sizes]
    fitting = fitting or [program for program in manifest.programs if program.any_size]
    if not fitting:
        asked = ", ".join(f"{name}={size}" for name, size in bound.items())
        raise InputError(f"the bundle has no program for {asked}; it has {sizes_known(manifest)}")
    return next((program for program in fitting if program.platform == platform), fitting[0])


def sizes_known(manifest: Manifest) -> str:
    """The sizes for which there are programs: ``"batch=1; batch=8"``, ``"every size"``, or ``"one size"``."""
    named = (", ".join(f"{k}={v}" for k, v in program.dims.items()) or "one size" for program in manifest.programs)
    return "; ".join(dict.fromkeys("every size" if p.any_size else n for p, n in zip(manifest.programs, named)))


def _takes(manifest: Manifest) -> str:
    return f"the bundle takes {', '.join(f'{t.name}: {t}' for t in manifest.inputs) or 'none'}"


def _array(tensor: Tensor, value: Any) -> Array:
    values = np.asarray(value)
    if values.dtype.name != tensor.dtype:
        raise InputError(f"the input {tensor.name} is {tensor}, and {values.dtype} was given; convert it first")
    return values


def _bind(manifest: Manifest, tensor: Tensor, given: tuple[int, ...], bound: dict[str, int]) -> None:
    """Learn what `given` makes of the named dimensions of `tensor`."""
    if len(given) != len(tensor.sizes):
        raise InputError(f"the input {tensor.name} is {tensor}, and sizes {given} were given")
    for size, actual in zip(tensor.sizes, given):
        expected = bound.setdefault(size, actual) if isinstance(size, str) else size
        if actual != expected:
            raise InputError(
                f"the input {tensor.name} is {tensor}, and sizes {given} were given: {size} "
                f"{f'is {expected} in an earlier input' if isinstance(size, str) else 'does not vary'}"
            )
        if isinstance(size, str) and not manifest.dims[size].admits(actual):
            raise InputError(f"the input {tensor.name} has {size}={actual}, and {show_range(manifest, size)}")


def show_range(manifest: Manifest, name: str) -> str:
    """``"1 <= batch <= 64"``."""
    dim = manifest.dims[name]
    return f"{dim.min} <= {name}" + (f" <= {dim.max}" if dim.max is not None else "")
