"""A bundle of each format version that ever was, under tests/data: each must load and give its numbers for ever."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from torus import runtime
from torus.bundle import Bundle, Dim, NewProgram, NewWeight, Tensor, write

DATA = Path(__file__).parents[1] / "data"
FOLDER = DATA / "bundle_v1"
MANIFEST = "bf85c5968c29b881edc7098d5903102e07dba66f8fa98b87727db8abbe92be09"


def model(w: Any, tied: Any, half: Any, eighth: Any, x: Any, shift: Any) -> tuple[Any, ...]:
    y = (x[:, :, None] * w).sum(1) + tied[0]
    return y, (y * half.astype("float32")).astype("bfloat16"), x[:, 0].astype("int64") + shift, eighth


def write_version_1(path: Path) -> None:
    """How the files of version 1 were made. They are never made again."""
    w = np.arange(6, dtype="float32").reshape(3, 2)
    half, eighth = np.array([0.5, -3], ml_dtypes.bfloat16), np.array([1, 240], ml_dtypes.float8_e4m3fn)
    weights = [NewWeight("w", w), NewWeight("tied", w), NewWeight("half", half, "buffer")]
    weights.append(NewWeight("eighth", eighth, "constant"))
    avals = [(w.values.shape, w.values.dtype.name) for w in weights]
    programs = []
    for batch in (1, 4):
        text, outs = runtime.lower(model, [*avals, ((batch, 3), "float32"), ((), "int64")])
        sizes = tuple(shape for shape, _ in outs)
        programs.append(NewProgram(text, ((batch, 3), ()), sizes, "cpu", {"batch": batch}))
    write(
        path,
        name="Golden",
        inputs=[Tensor("x", "float32", ("batch", 3)), Tensor("shift", "int64", ())],
        outputs=[
            Tensor("y", "float32", ("batch", 2)),
            Tensor("more.0", "bfloat16", ("batch", 2)),
            Tensor("more.1.0", "int64", ("batch",)),
            Tensor("eighth", "float8_e4m3fn", (2,)),
        ],
        programs=programs,
        weights=weights,
        result={"dict": {"y": 0, "more": {"list": [1, {"tuple": [2, {"value": None}]}]}, "eighth": 3}},
        dims={"batch": Dim(1, 8)},
        versions={"torch": "2.13.0"},
    )


def test_nobody_made_the_files_again() -> None:
    assert hashlib.sha256((FOLDER / "manifest.json").read_bytes()).hexdigest() == MANIFEST
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 20_000


def test_version_1_loads_and_gives_its_numbers() -> None:
    bundle = Bundle.load(FOLDER)
    for rows in (1, 4):
        x = np.array([[1, 2, 3], [4, 5, 6], [0.5, 0, 0], [-1, 1, -1]], "float32")[:rows]
        result = bundle.run(x, shift=np.int64(10))
        y = [[16, 23], [34, 50], [0, 1.5], [-2, -2]][:rows]
        assert result["y"].tolist() == y
        half, (shifted, none) = result["more"]
        assert half.dtype == ml_dtypes.bfloat16
        assert half.tolist() == [[8, -69], [17, -150], [0, -4.5], [-1, 6]][:rows]
        assert shifted.tolist() == [11, 14, 10, 9][:rows] and none is None
        assert result["eighth"].dtype == ml_dtypes.float8_e4m3fn and result["eighth"].tolist() == [1, 240]


def test_version_1_says_what_it_is() -> None:
    manifest = Bundle.load(FOLDER).manifest
    assert manifest.name == "Golden" and manifest.dims == {"batch": Dim(1, 8)}
    assert [(w.name, w.kind, w.tensor) for w in manifest.weights] == [
        ("w", "parameter", "w"),
        ("tied", "parameter", "w"),
        ("half", "buffer", "half"),
        ("eighth", "constant", "eighth"),
    ]
    assert manifest.versions["stablehlo"] == "1.13.7"
