"""The C runner: a C program that runs a bundle gives what Python gives."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.conftest import environment
from torus.bundle import Bundle
from torus.bundle.build_c_runner import build, flags, main

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the library and its header are."""
    directory = tmp_path_factory.mktemp("runner")
    assert build(directory).is_file()
    return directory


@pytest.fixture(scope="module")
def run(directory: Path) -> Run:
    """Runs the C program of run_bundle.c."""
    source = Path(__file__).parent / "run_bundle.c"
    warnings = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *warnings, source, *flags(directory), "-o", directory / "run"], check=True)

    def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [directory / "run", *map(str, arguments)]
        return subprocess.run(
            command, env=environment(**variables), capture_output=True, text=True, check=False, timeout=60
        )

    return run


def expected(folder: Path, batch: int) -> str:
    x = (np.arange(batch * 3, dtype="float32") / 4).reshape(batch, 3)
    bundle = Bundle.load(folder)
    lines = bundle.describe().splitlines()
    for tensor, values in zip(bundle.manifest.outputs, bundle.run_flat([x, np.array(0)])):
        head = " ".join([tensor.name, tensor.dtype, *map(str, values.shape)])
        lines.append(f"{head}: {values.tobytes().hex(' ')}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("batch", [1, 4])
def test_a_c_program_gives_the_same_bytes(folder: Path, run: Run, batch: int) -> None:
    done = run(folder, batch)
    assert (done.stdout, done.stderr, done.returncode) == (expected(folder, batch), "", 0)


def test_errors_reach_the_c_program(folder: Path, run: Run, tmp_path: Path) -> None:
    done = run(folder, 3)
    assert done.stdout.endswith("InputError: the bundle has no program for batch=3; it has batch=1; batch=4\n")
    assert done.returncode == 1
    assert run(tmp_path, 1).stdout.startswith(f"FileNotFoundError: {tmp_path} is not a bundle")
    assert "Python does not start" in run(folder, 1, PYTHONHOME=str(tmp_path)).stdout


class Tensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("rank", ctypes.c_size_t),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
    )


def given(values: np.ndarray, name: bytes | None = None, dtype: bytes | None = None) -> Tensor:
    sizes = (ctypes.c_int64 * values.ndim)(*values.shape)
    return Tensor(name, dtype or values.dtype.name.encode(), values.ndim, sizes, values.ctypes.data, values.nbytes)


@pytest.fixture
def library(directory: Path) -> ctypes.CDLL:
    """The library in this process, which has Python already."""
    library = ctypes.CDLL(str(directory / "libtorus_bundle.so"))
    for name in ("torus_bundle_load", "torus_bundle_run"):
        getattr(library, name).restype = ctypes.c_void_p
    library.torus_results_get.restype = ctypes.POINTER(Tensor)
    library.torus_bundle_input.restype = ctypes.POINTER(Tensor)
    library.torus_bundle_last_error.restype = ctypes.c_char_p
    return library


def test_a_process_that_has_python_already(folder: Path, library: ctypes.CDLL) -> None:
    bundle = ctypes.c_void_p(library.torus_bundle_load(str(folder).encode()))
    assert bundle.value, library.torus_bundle_last_error()
    assert library.torus_bundle_input(bundle, 0).contents.sizes[:2] == [-1, 3]
    assert not library.torus_bundle_input(bundle, 2)
    x, shift = np.ones((4, 3), "float32"), np.array(5)
    inputs = (Tensor * 2)(given(shift, b"shift"), given(x, b"x"))
    results = ctypes.c_void_p(library.torus_bundle_run(bundle, inputs, 2))
    assert results.value, library.torus_bundle_last_error()
    output = library.torus_results_get(results, 0).contents
    values = np.frombuffer(ctypes.string_at(output.data, output.bytes), "float32").reshape(output.sizes[: output.rank])
    assert np.array_equal(values, Bundle.load(folder).run(x, shift)["y"])
    library.torus_results_free(results)
    library.torus_bundle_free(bundle)


X, WIDE, SHIFT = np.ones((1, 3), "float32"), np.ones((1, 3)), np.array(1)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], b"the input x is missing"),
        ([given(WIDE), given(SHIFT)], b"the input x is float32 (batch, 3), and float64 was given"),
        ([given(X, dtype=b"float63")], b"the input x is not float63 (1, 3): 12 bytes"),
        ([given(X, dtype=b"int8")], b"the input x is not int8 (1, 3): 12 bytes were given"),
        ([given(SHIFT, b"shift")] * 2, b"the input shift was given twice"),
        ([given(X)] * 3, b"is number 3, and the bundle takes 2"),
    ],
)
def test_inputs_that_do_not_fit(folder: Path, library: ctypes.CDLL, inputs: list[Tensor], message: bytes) -> None:
    bundle = ctypes.c_void_p(library.torus_bundle_load(str(folder).encode()))
    assert library.torus_bundle_run(bundle, (Tensor * 3)(*inputs), len(inputs)) is None
    assert message in library.torus_bundle_last_error()
    library.torus_bundle_free(bundle)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "lib")]) == 0
    library, command = capsys.readouterr().out.splitlines()
    assert Path(library).is_file() and (tmp_path / "lib" / "torus_bundle.h").is_file()
    assert command.startswith("cc program.c -I") and "-ltorus_bundle" in command
    assert main(["--help"]) == 2


def test_what_prevents_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sysconfig

    monkeypatch.setenv("CC", f"{sys.executable} -c 'import sys; sys.exit(\"no such flag\")'")
    with pytest.raises(RuntimeError, match="does not build: no such flag"):
        build(tmp_path)
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: None)
    with pytest.raises(RuntimeError, match="does not come as a shared library"):
        build(tmp_path)
