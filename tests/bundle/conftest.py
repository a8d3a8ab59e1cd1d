"""Fixtures of the bundle tests; these need no PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtime.conftest import python  # noqa: F401
from torus import runtime
from torus.bundle import Dim, NewProgram, NewWeight, Tensor, write

W = np.arange(6, dtype="float32").reshape(3, 2)
B = np.array([0.5, -1], "float32")


def affine(w: Any, tied: Any, b: Any, x: Any, shift: Any) -> tuple[Any, Any]:
    return (x[:, :, None] * w).sum(1) + b, x[:, 0].astype("int64") + shift + (tied[0, 0] != 0)


def write_affine(path: Path, **options: Any) -> Path:
    """A bundle with two sizes, tied weights, two dtypes and a nested result."""
    programs = []
    for batch in (1, 4):
        sizes = ((batch, 3), ())
        weights = [((3, 2), "float32"), ((3, 2), "float32"), ((2,), "float32")]
        text, outs = runtime.lower(affine, [*weights, (sizes[0], "float32"), (sizes[1], "int64")])
        programs.append(NewProgram(text, sizes, tuple(shape for shape, _ in outs), "cpu", {"batch": batch}))
    write(
        path,
        name="Affine",
        inputs=[Tensor("x", "float32", ("batch", 3)), Tensor("shift", "int64", ())],
        outputs=[Tensor("y", "float32", ("batch", 2)), Tensor("n.0", "int64", ("batch",))],
        programs=programs,
        weights=[NewWeight("w", W), NewWeight("tied", W), NewWeight("b", B, "buffer")],
        result={"dict": {"y": 0, "n": {"tuple": [1, {"value": None}]}}},
        dims={"batch": Dim(1, 8)},
        **options,
    )
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of `write_affine`; not to be changed."""
    return write_affine(tmp_path_factory.mktemp("bundles") / "affine")
