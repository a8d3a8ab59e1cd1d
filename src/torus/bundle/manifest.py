"""The manifest of a bundle: what it takes, what it gives, and which file holds what. It is `manifest.json`.

Sizes are whole numbers, or the name of a dimension that varies between programs. The parameters of every program are
the weights, in the manifest's order, and then the inputs; its results are the outputs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from torus.bundle.errors import DamagedBundleError, NewerFormatError

FORMAT = "torus-bundle"
FORMAT_VERSION = 1
"""The newest version that this code reads, and the one that it writes. Every earlier one must stay readable."""

FILE = "manifest.json"

Sizes = tuple[int | str, ...]


@dataclass(frozen=True)
class Tensor:
    """An input or an output: `dtype` is NumPy's or ml_dtypes' name, such as ``"bfloat16"``."""

    name: str
    dtype: str
    sizes: Sizes

    def __str__(self) -> str:
        return f"{self.dtype} ({', '.join(map(str, self.sizes))})"


@dataclass(frozen=True)
class Dim:
    """What a dimension may be, both ends included; ``max=None``: no upper end."""

    min: int = 0
    max: int | None = None

    def admits(self, size: int) -> bool:
        """Whether `size` lies in the range."""
        return self.min <= size and (self.max is None or size <= self.max)


@dataclass(frozen=True)
class Weight:
    """A parameter, buffer or constant (`kind`) and the `tensor` of the weights file that it is; tied ones share one."""

    name: str
    kind: str
    dtype: str
    sizes: tuple[int, ...]
    tensor: str


@dataclass(frozen=True)
class Program:
    """A StableHLO portable artifact: for one assignment of sizes to `dims`, or, where `inputs` has names, for any.

    `inputs` and `outputs` are the sizes of each. `platform` is what it was lowered for; it runs on every other one too,
    unless it has `custom_calls`.
    """

    file: str
    platform: str
    dims: dict[str, int]
    inputs: tuple[Sizes, ...]
    outputs: tuple[Sizes, ...]
    custom_calls: tuple[str, ...] = ()

    @property
    def any_size(self) -> bool:
        """Whether the sizes vary: the program has to be specialized before it is compiled."""
        return any(isinstance(size, str) for sizes in self.inputs for size in sizes)


@dataclass(frozen=True)
class File:
    """Size in bytes and SHA-256 (hexadecimal) of a file, as it was written."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """All of `manifest.json`. `result` is the structure of what the model returns (`torus.bundle.tree`); `files` are
    named relative to the bundle; `versions` are those of the libraries that made it.
    """

    name: str
    dims: dict[str, Dim]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    result: Any
    weights: tuple[Weight, ...]
    weights_file: str
    programs: tuple[Program, ...]
    files: dict[str, File]
    versions: dict[str, str]

    def to_json(self) -> str:
        """The text of `manifest.json`."""
        head = {"format": FORMAT, "format_version": FORMAT_VERSION}
        return json.dumps(head | asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Manifest:
        """The manifest in `text`. Raises DamagedBundleError, and NewerFormatError for a version from the future."""
        try:
            data = json.loads(text)
            if data["format"] != FORMAT:
                raise ValueError(f"its format is {data['format']!r}, not {FORMAT!r}")
            _check_version(data["format_version"])
            return _read(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise DamagedBundleError(f"{FILE} is not the manifest of a bundle: {reason}") from error


def _check_version(version: Any) -> None:
    if type(version) is not int or version < 1:
        raise ValueError(f"its format version is {version!r}")
    if version > FORMAT_VERSION:
        raise NewerFormatError(
            f"the bundle has format version {version}, and this version of torus reads up to {FORMAT_VERSION}: "
            "install a newer torus, or export the model again with this one"
        )


def _read(data: Mapping[str, Any]) -> Manifest:
    manifest = Manifest(
        name=_text(data["name"]),
        dims={_text(name): Dim(_whole(d["min"]), _optional(_whole, d["max"])) for name, d in data["dims"].items()},
        inputs=tuple(map(_tensor, data["inputs"])),
        outputs=tuple(map(_tensor, data["outputs"])),
        result=data["result"],
        weights=tuple(map(_weight, data["weights"])),
        weights_file=_inside(data["weights_file"]),
        programs=tuple(map(_program, data["programs"])),
        files={_inside(name): File(_whole(f["bytes"]), _text(f["sha256"])) for name, f in data["files"].items()},
        versions={_text(name): _text(version) for name, version in data["versions"].items()},
    )
    _check(manifest)
    return manifest


def _check(manifest: Manifest) -> None:
    """What the parts promise each other."""
    for name in (manifest.weights_file, *(program.file for program in manifest.programs)):
        if name not in manifest.files:
            raise ValueError(f"it does not list the file {name}")
    for program in manifest.programs:
        if len(program.inputs) != len(manifest.inputs) or len(program.outputs) != len(manifest.outputs):
            raise ValueError(f"{program.file} has another number of inputs or outputs than the bundle")
    unknown = {s for tensor in manifest.inputs for s in tensor.sizes if isinstance(s, str)} - manifest.dims.keys()
    if unknown:
        raise ValueError(f"it does not say what {', '.join(sorted(unknown))} may be")


def _tensor(data: Mapping[str, Any]) -> Tensor:
    return Tensor(_text(data["name"]), _text(data["dtype"]), _sizes(data["sizes"]))


def _sizes(data: Any) -> Sizes:
    return tuple(size if isinstance(size, str) else _whole(size) for size in data)


def _weight(data: Mapping[str, Any]) -> Weight:
    name, kind, dtype, tensor = (_text(data[key]) for key in ("name", "kind", "dtype", "tensor"))
    return Weight(name, kind, dtype, tuple(map(_whole, data["sizes"])), tensor)


def _program(data: Mapping[str, Any]) -> Program:
    return Program(
        _inside(data["file"]),
        _text(data["platform"]),
        {_text(name): _whole(size) for name, size in data["dims"].items()},
        tuple(map(_sizes, data["inputs"])),
        tuple(map(_sizes, data["outputs"])),
        tuple(map(_text, data["custom_calls"])),
    )


def _optional(read: Callable[[Any], int], value: Any) -> int | None:
    return None if value is None else read(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a size")
    return value


def _inside(name: Any) -> str:
    """A file name that stays in the bundle."""
    path = PurePosixPath(_text(name))
    if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
        raise ValueError(f"the file name {name!r} leads out of the bundle")
    return str(path)
