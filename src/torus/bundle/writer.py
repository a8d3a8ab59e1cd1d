"""Writing a bundle: into a new folder beside its place, which then takes the place at once."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from torus.bundle import weights as weights_file
from torus.bundle.errors import BundleError
from torus.bundle.manifest import FILE, Dim, File, Manifest, Program, Sizes, Tensor, Weight
from torus.bundle.tree import Tree
from torus.bundle.weights import Array

WEIGHTS = "weights.safetensors"

_OF_SIZES = {"shape_assertion"}
"""Calls that are gone when the sizes are known."""


@dataclass(frozen=True)
class NewWeight:
    """A weight to be written. Two with the same array object are tied: it is stored once."""

    name: str
    values: Array
    kind: str = "parameter"


@dataclass(frozen=True)
class NewProgram:
    """A StableHLO module to be written, as text; its parameters are the weights and then the inputs, in order.

    `inputs` and `outputs` are the sizes of each, and `dims` what they make of the named dimensions. A module of
    `runtime.lower_any_size` keeps the names among its sizes, and has no `dims`.
    """

    stablehlo: str
    inputs: tuple[Sizes, ...]
    outputs: tuple[Sizes, ...]
    platform: str
    dims: dict[str, int] = field(default_factory=dict)


def write(
    path: str | PathLike[str],
    *,
    name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    programs: Sequence[NewProgram],
    weights: Sequence[NewWeight] = (),
    result: Tree = None,
    dims: Mapping[str, Dim] | None = None,
    versions: Mapping[str, str] | None = None,
    overwrite: bool = False,
) -> None:
    """Write a bundle to the folder `path`; equal arguments give equal files.

    `result` is the structure of what `run` returns (`torus.bundle.tree`), by default the output, or a tuple of several.
    `versions` are added to those of torus, jax, jaxlib and StableHLO. Raises FileExistsError where something is at
    `path`, unless `overwrite` and it is a bundle, and BundleError for what a bundle cannot hold.
    """
    place = Path(path)
    _check_place(place, overwrite)
    if result is None:
        result = 0 if len(outputs) == 1 else {"tuple": list(range(len(outputs)))}
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as scratch:
        folder = Path(scratch) / "bundle"
        (folder / "programs").mkdir(parents=True)
        tensors, entries = _tie(weights)
        weights_file.save(folder / WEIGHTS, tensors)
        written = tuple(_write_program(folder, i, program) for i, program in enumerate(programs))
        manifest = Manifest(
            name,
            dict(dims or {}),
            tuple(inputs),
            tuple(outputs),
            result,
            entries,
            WEIGHTS,
            written,
            {file: describe(folder / file) for file in (WEIGHTS, *(program.file for program in written))},
            _versions() | dict(versions or {}),
        )
        text = manifest.to_json()
        if Manifest.from_json(text) != manifest:
            raise BundleError("the names or values of this bundle cannot be written as JSON")
        (folder / FILE).write_text(text, encoding="utf-8")
        shutil.copymode(folder / FILE, folder / WEIGHTS)  # safetensors makes files for their owner alone
        if place.exists():
            place.rename(Path(scratch) / "old")
        folder.rename(place)


def describe(path: Path) -> File:
    """Size and SHA-256 of a file."""
    with path.open("rb") as file:
        return File(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def _check_place(place: Path, overwrite: bool) -> None:
    if place.exists() and not overwrite:
        raise FileExistsError(f"{place} exists; give overwrite=True to replace a bundle")
    if place.exists() and not (place / FILE).is_file():
        raise FileExistsError(f"{place} exists and is not a bundle, so it is not overwritten")


def _tie(weights: Sequence[NewWeight]) -> tuple[dict[str, Array], tuple[Weight, ...]]:
    tensors: dict[str, Array] = {}
    first: dict[int, str] = {}
    entries = []
    for weight in weights:
        tensor = first.setdefault(id(weight.values), weight.name)
        tensors[tensor] = weight.values
        entries.append(Weight(weight.name, weight.kind, weight.values.dtype.name, weight.values.shape, tensor))
    return tensors, tuple(entries)


def _write_program(folder: Path, index: int, program: NewProgram) -> Program:
    from torus import runtime

    file = f"programs/{index}.mlirbc"
    (folder / file).write_bytes(runtime.portable_artifact(program.stablehlo))
    calls = set(re.findall(r"stablehlo\.custom_call @([\w.$]+)", program.stablehlo)) - _OF_SIZES
    return Program(file, program.platform, dict(program.dims), program.inputs, program.outputs, tuple(sorted(calls)))


def _versions() -> dict[str, str]:
    import torus
    from torus import runtime

    found = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib")}
    return {"torus": torus.__version__, **found, "stablehlo": runtime.portable_version()}
