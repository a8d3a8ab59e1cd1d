"""A bundle that was read from its folder, and running it on a device of this process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from torus import runtime
from torus.bundle import arguments, tree
from torus.bundle import weights as weights_file
from torus.bundle.errors import BundleError, DamagedBundleError
from torus.bundle.manifest import FILE, Manifest, Program
from torus.bundle.report import report
from torus.bundle.weights import Array
from torus.bundle.writer import describe as describe_file

Sizes = tuple[tuple[int, ...], ...]

_OPTIONS = {"xla_allow_excess_precision": False}
"""Half precisions round where the model's ops do, as in torus' fused programs."""


class Bundle:
    """A model: `run` it with NumPy arrays. `manifest` says all about it. Safe from any number of threads."""

    def __init__(self, path: Path, manifest: Manifest, device_index: int = 0) -> None:
        self.path = path
        self.manifest = manifest
        self.device_index = device_index
        self._lock = threading.Lock()
        self._weights: list[Any] | None = None
        self._programs: dict[tuple[str, Sizes], runtime.programs.Program] = {}

    @classmethod
    def load(cls, path: str | PathLike[str], *, verify: bool = True, device_index: int = 0) -> Bundle:
        """The bundle in the folder `path`, to run on ``tpu:device_index``. Starts no client.

        `verify` reads every file once to compare checksums. Raises FileNotFoundError where there is no bundle,
        DamagedBundleError and NewerFormatError.
        """
        folder = Path(path)
        try:
            text = (folder / FILE).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(f"{folder} is not a bundle: it has no {FILE}") from None
        bundle = cls(folder, Manifest.from_json(text), device_index)
        if verify:
            bundle.verify()
        return bundle

    def verify(self) -> None:
        """Compare every file with the manifest. Raises DamagedBundleError that names the first that differs."""
        for name, expected in self.manifest.files.items():
            try:
                found = describe_file(self.path / name)
            except OSError as error:
                raise DamagedBundleError(f"{name} of the bundle {self.path} cannot be read: {error}") from error
            if found.bytes != expected.bytes:
                raise DamagedBundleError(
                    f"{name} of the bundle {self.path} has {found.bytes} bytes, and {expected.bytes} were written"
                )
            if found.sha256 != expected.sha256:
                raise DamagedBundleError(
                    f"{name} of the bundle {self.path} is not what was written: its SHA-256 differs"
                )

    def run(self, /, *inputs: Any, **named: Any) -> Any:
        """What the model returns, with read-only NumPy arrays for tensors.

        Inputs come in the manifest's order, by name, or as one dict. Raises InputError for what the model does not
        take, and BundleError where its program does not run on this platform.
        """
        return tree.rebuild(self.manifest.result, self.run_flat(arguments.collect(self.manifest, inputs, named)))

    def run_flat(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs in the manifest's order, for inputs in its order. Raises as `run`."""
        chosen = arguments.choose(self.manifest, inputs, runtime.platform_name())
        program = self._program(chosen, tuple(values.shape for values in inputs))
        arrays = [runtime.from_numpy(values, self.device_index) for values in inputs]
        return [runtime.to_numpy(result) for result in program([*self._placed_weights(), *arrays])]

    def weights(self) -> dict[str, Array]:
        """The values of every weight by its name; tied ones are the same array. Raises DamagedBundleError."""
        entries = self.manifest.weights
        tensors = weights_file.load(self.path / self.manifest.weights_file, entries)
        return {weight.name: tensors[weight.tensor] for weight in entries}

    def describe(self) -> str:
        """A few lines for people: inputs, outputs, weights, programs, versions."""
        return report(self.manifest)

    def _placed_weights(self) -> list[Any]:
        """The weights on the device, sent there once; tied ones are one array."""
        with self._lock:
            if self._weights is None:
                placed: dict[int, Any] = {}
                values = self.weights().values()
                for array in values:
                    if id(array) not in placed:
                        placed[id(array)] = runtime.from_numpy(array, self.device_index)
                self._weights = [placed[id(array)] for array in values]
            return self._weights

    def _program(self, program: Program, inputs: Sizes) -> runtime.programs.Program:
        key = program.file, inputs
        with self._lock:
            if key not in self._programs:
                self._programs[key] = self._compile(program, inputs)
            return self._programs[key]

    def _compile(self, program: Program, inputs: Sizes) -> runtime.programs.Program:
        platform = runtime.platform_name()
        if program.custom_calls and program.platform != platform:
            raise BundleError(
                f"the bundle {self.path} calls kernels of the platform {program.platform} "
                f"({', '.join(program.custom_calls)}), and this process runs on {platform}: export the model there"
            )
        artifact = (self.path / program.file).read_bytes()
        try:
            if program.any_size:
                artifact, outputs = runtime.specialize(artifact, [*(w.sizes for w in self.manifest.weights), *inputs])
            else:
                outputs = [tuple(map(int, sizes)) for sizes in program.outputs]
            avals = [(sizes, tensor.dtype) for sizes, tensor in zip(outputs, self.manifest.outputs)]
            return runtime.programs.get_or_compile(artifact, avals, self.device_index, _OPTIONS)
        except (RuntimeError, ValueError) as error:
            versions = ", ".join(f"{name} {version}" for name, version in self.manifest.versions.items())
            raise BundleError(
                f"{program.file} of the bundle {self.path}, made with {versions}, does not compile here: {error}"
            ) from error

    def __repr__(self) -> str:
        return f"<Bundle {self.manifest.name} at {self.path}>"
