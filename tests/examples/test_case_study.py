"""The notebook is its script, run: the same cells, and outputs that say what the text around them promises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from make_notebook import cells, executed

SCRIPT = Path(__file__).parents[2] / "examples" / "case_study.py"


def printed(notebook: dict) -> list[str]:
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    return ["".join(output["text"]) for output in outputs]


def holds(sections: list[str]) -> None:
    """What the text says, by the figures: seven sections print."""
    programs, copies, precision, converged, memory, chips, modes = sections
    count = [int(line.split(":")[1].split()[0]) for line in programs.splitlines()]
    assert count[2] < count[0] / 50 and count[3] < count[1] / 50
    theirs, ours = (int(line.split(",")[1].split()[0]) for line in copies.splitlines())
    assert ours <= 8 < theirs
    errors = [float(line.split()[2].rstrip(";")) for line in precision.splitlines()]
    assert errors[0] > 20 * errors[1] > 20 * errors[2] and errors[2] < 5e-7
    assert "passed: True" in converged
    wide, sparing = (float(line.split()[1]) for line in memory.splitlines())
    assert sparing < wide / 10
    assert "out of memory" in chips and "the same bits: True" in chips
    assert [line.split()[0] for line in modes.splitlines()] == ["strict", "fused", "compiled"]


def test_the_notebook_is_the_script() -> None:
    notebook = json.loads(SCRIPT.with_suffix(".ipynb").read_text(encoding="utf-8"))
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    assert found == cells(SCRIPT.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert all("id" in cell and isinstance(cell["metadata"], dict) for cell in notebook["cells"])
    holds(printed(notebook))


@pytest.mark.skipif(os.environ.get("TORUS_CAPTUM") != "full", reason="a minute: make test-captum runs the notebook")
def test_its_cells_print_that_again() -> None:
    pytest.importorskip("captum")
    code = "import json, sys, pathlib, make_notebook as notebook\n"
    code += "print(json.dumps(notebook.executed(notebook.cells(pathlib.Path(sys.argv[1]).read_text()))))"
    folder = str(SCRIPT.parent)
    path = os.pathsep.join(filter(None, (folder, str(SCRIPT.parents[1] / "src"), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-c", code, str(SCRIPT)]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    holds(printed(json.loads(done.stdout.splitlines()[-1])))


def test_a_cell_that_fails_fails_the_notebook() -> None:
    made = executed([("markdown", "# Text"), ("code", "a = 2\nprint(a)"), ("code", "b = a + 1\nprint(b)")])
    assert printed(made) == ["2\n", "3\n"]
    with pytest.raises(ZeroDivisionError):
        executed([("code", "1 / 0")])
