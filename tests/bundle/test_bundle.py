"""Loading and running a bundle, and everything that can be wrong with one or with what it is given."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bundle.conftest import B, W
from torus import runtime
from torus.bundle import (
    Bundle,
    BundleError,
    DamagedBundleError,
    Dim,
    InputError,
    NewerFormatError,
    NewProgram,
    NewWeight,
    Tensor,
    write,
)

X = np.array([[1, 2, 3], [4, 5, 6], [0.5, 0, 0], [-1, 1, -1]], "float32")
SHIFT = np.array(10, "int64")


def test_a_result_has_the_models_structure_and_values(folder: Path) -> None:
    result = Bundle.load(folder).run(X, SHIFT)
    assert list(result) == ["y", "n"] and isinstance(result["n"], tuple) and result["n"][1] is None
    np.testing.assert_allclose(result["y"], X @ W + B, rtol=1e-6)
    assert result["n"][0].dtype == "int64" and result["n"][0].tolist() == [11, 14, 10, 9]


@pytest.mark.parametrize(
    "run",
    [
        lambda b: b.run(X, shift=SHIFT),
        lambda b: b.run({"shift": SHIFT, "x": X}),
        lambda b: b.run(shift=SHIFT, x=X),
        lambda b: b.run({"x": X}, shift=SHIFT),
        lambda b: b.run(X[::-1].copy()[::-1], SHIFT.astype(">i8")),
    ],
)
def test_inputs_come_by_position_or_by_name(folder: Path, run: Callable[[Bundle], Any]) -> None:
    assert run(Bundle.load(folder))["n"][0].tolist() == [11, 14, 10, 9]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([X], "the input shift is missing; the bundle takes x: float32 (batch, 3), shift: int64 ()"),
        ([X, SHIFT, SHIFT], "3 inputs were given"),
        ([{"x": X, "y": X}], "there is no input y; the bundle takes x"),
        ([X.astype("float64"), SHIFT], "the input x is float32 (batch, 3), and float64 was given"),
        ([X, np.int32(1)], "the input shift is int64 (), and int32 was given"),
        ([X[0], SHIFT], "the input x is float32 (batch, 3), and sizes (3,) were given"),
        ([X[:, :2], SHIFT], "the input x is float32 (batch, 3), and sizes (4, 2) were given: 3 does not vary"),
        ([X[:2], SHIFT], "the bundle has no program for batch=2; it has batch=1; batch=4"),
        ([np.zeros((9, 3), "float32"), SHIFT], "the input x has batch=9, and 1 <= batch <= 8"),
    ],
)
def test_inputs_that_do_not_fit(folder: Path, arguments: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        Bundle.load(folder).run(*arguments)


def test_an_input_given_twice(folder: Path) -> None:
    with pytest.raises(InputError, match="the input x was given twice"):
        Bundle.load(folder).run(X, x=X)


def test_tied_weights_are_stored_and_sent_once(folder: Path) -> None:
    bundle = Bundle.load(folder)
    weights = bundle.weights()
    assert list(weights) == ["w", "tied", "b"] and weights["w"] is weights["tied"]
    placed = bundle._placed_weights()
    assert placed[0] is placed[1] and placed[0] is not placed[2]
    assert bundle.manifest.files["weights.safetensors"].bytes < 2 * (W.nbytes + B.nbytes) + 200


def test_a_second_process_finds_its_programs_in_the_cache(folder: Path, python: Callable[..., Any]) -> None:
    code = f"""
import numpy as np
from torus import runtime
from torus.bundle import Bundle
bundle = Bundle.load({str(folder)!r})
y = bundle.run(np.ones((4, 3), "float32"), np.int64(2))["y"]
print(y.tolist()[0], runtime.counters.compiles, "jax" in sys.modules, sys.modules["torch"])
"""
    assert [python(code).stdout for _ in range(2)] == ["[6.5, 8.0] 1 False None\n", "[6.5, 8.0] 0 False None\n"]


def test_importing_needs_neither_torch_nor_jax_nor_numpy(python: Callable[..., Any]) -> None:
    code = "import torus.bundle; print([m for m in ('jax', 'jaxlib', 'numpy', 'safetensors') if m in sys.modules])"
    assert python(code).stdout == "[]\n"
    assert python("import torus; print(torus.bundle.Bundle.__name__)").stdout == "Bundle\n"
    assert python("from torus.bundle import *; print(Bundle.load, write)").stdout.startswith(
        "<bound method Bundle.load"
    )


def test_a_bundle_runs_on_the_device_that_was_asked_for(folder: Path, python: Callable[..., Any]) -> None:
    code = f"""
import numpy as np
from torus.bundle import Bundle
bundle = Bundle.load({str(folder)!r}, device_index=1)
print(bundle.run(np.ones((1, 3), "float32"), np.int64(2))["n"][0], bundle._placed_weights()[0]._sharding._device.id)
"""
    assert python(code, TORUS_DEVICE_COUNT="2").stdout == "[3] 1\n"


def test_threads_share_a_bundle(folder: Path) -> None:
    bundle, results = Bundle.load(folder), []
    threads = [threading.Thread(target=lambda: results.append(bundle.run(X, SHIFT)["y"])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8 and all(np.array_equal(r, results[0]) for r in results)


def test_a_description_says_what_is_there(folder: Path) -> None:
    text = Bundle.load(folder).describe()
    for part in (
        "Affine, a bundle of format version 1",
        "inputs    x: float32 (batch, 3)",
        "1 <= batch <= 8",
        "n.0: int64 (batch)",
        "2 tensors, 8 numbers",
        "tied: tied = w",
        "batch=1; batch=4",
        "run on every platform",
        "stablehlo 1.",
    ):
        assert part in text


# One program for every size -------------------------------------------------------------------------------------------


def write_any_size(path: Path, *more: NewProgram) -> Path:
    def model(w: Any, x: Any) -> tuple[Any, Any]:
        return (x[:, :, None] * w).sum(1), x.reshape(-1)

    avals = [((3, 2), "float32"), (("batch", 3), "float32")]
    text, outs = runtime.lower_any_size(model, avals, ["batch <= 8"])
    x = Tensor("x", "float32", ("batch", 3))
    outputs = [Tensor(name, dtype, sizes) for name, (sizes, dtype) in zip("yz", outs)]
    program = NewProgram(text, (x.sizes,), tuple(t.sizes for t in outputs), "cpu")
    weights, dims = [NewWeight("w", W)], {"batch": Dim(1, 8)}
    write(
        path, name="any", inputs=[x], outputs=outputs, programs=[program, *more], weights=weights, dims=dims, result=0
    )
    return path


@pytest.fixture(scope="module")
def any_size(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_any_size(tmp_path_factory.mktemp("any") / "b")


def test_a_program_for_every_size_runs_for_each(any_size: Path) -> None:
    bundle = Bundle.load(any_size)
    for batch in (1, 2, 8, 2):
        x = np.arange(batch * 3, dtype="float32").reshape(batch, 3)
        y, z = bundle.run_flat([x])
        np.testing.assert_allclose(y, x @ W, rtol=1e-6)
        assert z.tolist() == x.reshape(-1).tolist()
    assert len(bundle._programs) == 3
    assert "programs  every size; lowered for cpu, and run on every platform" in bundle.describe()
    assert [str(t) for t in bundle.manifest.outputs] == ["float32 (batch, 2)", "float32 (3*batch)"]


def test_sizes_out_of_range_never_reach_the_program(any_size: Path) -> None:
    with pytest.raises(InputError, match="batch=9, and 1 <= batch <= 8"):
        Bundle.load(any_size).run(np.zeros((9, 3), "float32"))
    artifact = (any_size / "programs/0.mlirbc").read_bytes()
    with pytest.raises(ValueError, match=r"does not take the sizes \[\(3, 2\), \(9, 3\)\](.|\n)*batch <= 8"):
        runtime.specialize(artifact, [(3, 2), (9, 3)])


def test_a_program_for_the_size_is_preferred(tmp_path: Path) -> None:
    text, outs = runtime.lower(lambda w, x: (x[:, :2] - 1, x.reshape(-1)), [((3, 2), "float32"), ((2, 3), "float32")])
    special = NewProgram(text, ((2, 3),), tuple(shape for shape, _ in outs), "cpu", {"batch": 2})
    bundle = Bundle.load(write_any_size(tmp_path / "b", special))
    assert bundle.run(np.zeros((2, 3), "float32")).tolist() == [[-1, -1]] * 2
    assert bundle.run(np.zeros((1, 3), "float32")).tolist() == [[0, 0]]
    assert "every size; batch=2" in bundle.describe()


def test_a_second_process_compiles_no_size_again(any_size: Path, python: Callable[..., Any]) -> None:
    code = f"""
import numpy as np
from torus import runtime
from torus.bundle import Bundle
y = Bundle.load({str(any_size)!r}).run(np.ones((5, 3), "float32"))
print(y.tolist()[0], runtime.counters.compiles, "jax" in sys.modules)
"""
    assert [python(code).stdout for _ in range(2)] == ["[6.0, 9.0] 1 False\n", "[6.0, 9.0] 0 False\n"]


# Files that are not what was written ----------------------------------------------------------------------------------


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """A bundle to be damaged."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


@pytest.mark.parametrize("name", ["weights.safetensors", "programs/0.mlirbc", "programs/1.mlirbc"])
def test_a_changed_byte_is_found(copy: Path, name: str) -> None:
    data = bytearray((copy / name).read_bytes())
    data[-1] ^= 1
    (copy / name).write_bytes(data)
    with pytest.raises(DamagedBundleError, match=f"{name} of the bundle .* its SHA-256 differs"):
        Bundle.load(copy)
    with pytest.raises(DamagedBundleError):
        Bundle.load(copy, verify=False).verify()


def test_a_short_file_is_found(copy: Path) -> None:
    data = (copy / "weights.safetensors").read_bytes()
    (copy / "weights.safetensors").write_bytes(data[:-4])
    with pytest.raises(DamagedBundleError, match=f"has {len(data) - 4} bytes, and {len(data)} were written"):
        Bundle.load(copy)
    with pytest.raises(DamagedBundleError, match="does not hold the weights"):
        Bundle.load(copy, verify=False).run(X, SHIFT)


def test_a_missing_file_is_found(copy: Path) -> None:
    (copy / "programs/1.mlirbc").unlink()
    with pytest.raises(DamagedBundleError, match=r"programs/1.mlirbc .* cannot be read"):
        Bundle.load(copy)


def test_a_program_that_does_not_compile_says_what_made_it(copy: Path) -> None:
    (copy / "programs/1.mlirbc").write_bytes(b"ML\xefR nothing")
    with pytest.raises(BundleError, match=r"made with torus .* stablehlo 1\..* does not compile here"):
        Bundle.load(copy, verify=False).run(X, SHIFT)


def test_a_folder_without_a_bundle(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(FileNotFoundError, match=r"is not a bundle: it has no manifest.json"):
            Bundle.load(place)


def _change(copy: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    change(manifest)
    (copy / "manifest.json").write_text(json.dumps(manifest))


def test_a_newer_format_is_refused(copy: Path) -> None:
    _change(copy, lambda m: m.update(format_version=2, inputs="written in another way"))
    with pytest.raises(NewerFormatError, match="has format version 2, and this version of torus reads up to 1"):
        Bundle.load(copy)


def test_what_a_later_torus_adds_to_a_manifest_is_ignored(copy: Path) -> None:
    _change(copy, lambda m: m.update(remarks=["new"]))
    assert Bundle.load(copy).manifest.name == "Affine"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop("inputs"), "it has no 'inputs'"),
        (lambda m: m.update(format="zip"), "its format is 'zip'"),
        (lambda m: m.update(format_version="1"), "its format version is '1'"),
        (lambda m: m.update(inputs=3), "not iterable"),
        (lambda m: m["programs"][0].update(file="../../etc/passwd"), "leads out of the bundle"),
        (lambda m: m.update(weights_file="/etc/passwd"), "leads out of the bundle"),
        (lambda m: m["files"].pop("programs/0.mlirbc"), "does not list the file programs/0.mlirbc"),
        (lambda m: m["dims"].clear(), "does not say what batch may be"),
        (lambda m: m["programs"][1]["inputs"].pop(), "another number of inputs"),
        (lambda m: m["weights"][0]["sizes"].append(-1), "-1 is not a size"),
        (lambda m: m["outputs"][0].update(name=None), "None is not a string"),
    ],
)
def test_a_manifest_that_makes_no_sense(copy: Path, change: Callable[[Any], Any], message: str) -> None:
    _change(copy, change)
    with pytest.raises(DamagedBundleError, match=re.escape(message)):
        Bundle.load(copy)


def test_a_manifest_that_is_not_json(copy: Path) -> None:
    (copy / "manifest.json").write_text('{"format": "torus-bun')
    with pytest.raises(DamagedBundleError, match=r"manifest.json is not the manifest of a bundle"):
        Bundle.load(copy)


def test_weights_of_another_dtype_than_promised(copy: Path) -> None:
    _change(copy, lambda m: m["weights"][2].update(dtype="float16"))
    with pytest.raises(DamagedBundleError, match=r"b is float32 \(2,\), not float16 \(2,\)"):
        Bundle.load(copy).run(X, SHIFT)


def test_a_structure_of_results_that_makes_no_sense(copy: Path) -> None:
    _change(copy, lambda m: m.update(result={"dict": {"y": 7}}))
    with pytest.raises(DamagedBundleError, match="structure of results has 7"):
        Bundle.load(copy).run(X, SHIFT)


# Kernels of one platform ----------------------------------------------------------------------------------------------


def test_a_program_that_calls_a_kernel_runs_where_it_was_lowered_only(tmp_path: Path) -> None:
    from jax.numpy.linalg import cholesky

    text, _ = runtime.lower(lambda x: cholesky(x), [((2, 2), "float64")])
    x = Tensor("x", "float64", (2, 2))
    program = NewProgram(text, ((2, 2),), ((2, 2),), "cpu")
    write(tmp_path / "here", name="cholesky", inputs=[x], outputs=[x], programs=[program])
    bundle = Bundle.load(tmp_path / "here")
    assert bundle.run(np.array([[4.0, 2.0], [2.0, 3.0]]))[0].tolist() == [2.0, 0.0]
    assert "only for cpu, whose kernels they call: lapack_dpotrf_ffi" in bundle.describe()
    elsewhere = NewProgram(text, ((2, 2),), ((2, 2),), "tpu")
    write(tmp_path / "there", name="cholesky", inputs=[x], outputs=[x], programs=[elsewhere])
    with pytest.raises(BundleError, match=r"kernels of the platform tpu \(lapack_dpotrf_ffi\)"):
        Bundle.load(tmp_path / "there").run(np.eye(2))


def test_the_program_of_this_platform_is_preferred(tmp_path: Path) -> None:
    texts = [runtime.lower(lambda x, k=k: x + k, [((2,), "float32")])[0] for k in (1, 2)]
    programs = [NewProgram(t, ((2,),), ((2,),), p) for t, p in zip(texts, ("tpu", runtime.platform_name()))]
    x = Tensor("x", "float32", (2,))
    write(tmp_path / "two", name="two", inputs=[x], outputs=[x], programs=programs)
    assert Bundle.load(tmp_path / "two").run(np.zeros(2, "float32")).tolist() == [2, 2]


# Writing --------------------------------------------------------------------------------------------------------------


DTYPES = """bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 complex64 complex128
float8_e4m3fn float8_e5m2""".split()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_survives(tmp_path: Path, dtype: str) -> None:
    from torus.bundle.weights import dtype as numpy_dtype

    text, _ = runtime.lower(lambda w, e, s, x: (w, e, s, x), [(s, dtype) for s in ((2, 2), (2, 0), (), (3,))])
    kind = numpy_dtype(dtype)
    values = [np.array([[1, 0], [1, 1]]).astype(kind), np.zeros((2, 0), kind), np.array(1).astype(kind)]
    x = np.array([0, 1, 1]).astype(kind)
    outputs = [Tensor(str(i), dtype, v.shape) for i, v in enumerate([*values, x])]
    program = NewProgram(text, ((3,),), tuple(t.sizes for t in outputs), "cpu")
    weights = [NewWeight(f"w{i}", v) for i, v in enumerate(values)]
    inputs = [Tensor("x", dtype, (3,))]
    write(tmp_path / "b", name="b", inputs=inputs, outputs=outputs, programs=[program], weights=weights)
    results = Bundle.load(tmp_path / "b").run(x)
    assert isinstance(results, tuple)
    for result, value in zip(results, [*values, x]):
        assert (result.dtype, result.shape, result.tobytes()) == (kind, value.shape, value.tobytes())


def test_equal_models_give_equal_files(folder: Path, tmp_path: Path) -> None:
    from tests.bundle.conftest import write_affine

    again = write_affine(tmp_path / "again")
    names = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
    assert names == ["manifest.json", "programs/0.mlirbc", "programs/1.mlirbc", "weights.safetensors"]
    assert all((again / name).read_bytes() == (folder / name).read_bytes() for name in names)


def test_a_bundle_is_overwritten_only_when_asked(copy: Path, tmp_path: Path) -> None:
    from tests.bundle.conftest import write_affine

    with pytest.raises(FileExistsError, match="give overwrite=True"):
        write_affine(copy)
    (copy / "programs/0.mlirbc").unlink()
    write_affine(copy, overwrite=True)
    Bundle.load(copy).verify()
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileExistsError, match="is not a bundle, so it is not overwritten"):
        write_affine(tmp_path / "mine", overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy", "mine"]


def test_nothing_is_left_behind_by_a_failed_write(tmp_path: Path) -> None:
    x = Tensor("x", "float32", (2,))
    with pytest.raises(ValueError, match="this is not a StableHLO module"):
        write(tmp_path / "b", name="b", inputs=[x], outputs=[x], programs=[NewProgram("no", ((2,),), ((2,),), "cpu")])
    assert list(tmp_path.iterdir()) == []


def test_files_are_as_readable_as_the_users_others(folder: Path) -> None:
    assert len({(folder / name).stat().st_mode for name in ("manifest.json", "weights.safetensors")}) == 1
