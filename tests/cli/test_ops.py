"""``torus ops``: the table of operators."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from torus.backend import coverage, op_dtypes
from torus.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "ops.md"


def test_the_page_is_current(tmp_path: Path) -> None:
    """`torus ops --write docs/ops.md` brings it up to date."""
    assert main(["ops", "--write", str(tmp_path / "ops.md")]) == 0
    assert PAGE.read_text() == (tmp_path / "ops.md").read_text()


def test_dtypes_are_told_in_groups() -> None:
    half = [torch.float16, torch.int8]
    assert op_dtypes.describe(half) == "float16, int8"
    floating = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
    assert op_dtypes.describe([*floating, torch.bool]) == "floating, bool"


def test_it_lists_ops(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", "layer_norm"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["native_layer_norm", "native"] for line in lines)


def test_an_op_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", "no_such_op"]) == 2
    assert "no_such_op" in capsys.readouterr().err


def test_rows_tell_kinds_apart() -> None:
    kinds = {row.name: row.kind for row in coverage.rows()}
    assert kinds["add"] == "native" and kinds["einsum"] == "decomposed" and kinds["unique_dim"] == "fallback"


def test_ops_of_other_libraries_are_not_in_the_page() -> None:
    assert all("::" not in row.name for row in coverage.rows())
