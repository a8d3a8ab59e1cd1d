"""A notebook from a script of cells: ``python examples/make_notebook.py examples/case_study.py`` writes it beside that.

Cells begin with ``# %%``, those of text with ``# %% [markdown]``. They run here, in one process, and what they print is
in the notebook.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any


def cells(script: str) -> list[tuple[str, str]]:
    """("markdown" or "code", text) of each cell."""
    found = []
    for part in ("\n" + script).split("\n# %%")[1:]:
        kind, _, text = part.partition("\n")
        markdown = kind.strip() == "[markdown]"
        lines = [line.removeprefix("#").removeprefix(" ") if markdown else line for line in text.strip().split("\n")]
        found.append(("markdown" if markdown else "code", "\n".join(lines)))
    return found


def executed(parts: list[tuple[str, str]]) -> dict[str, Any]:
    """The notebook, with what its cells print. Raises what a cell raises."""
    names: dict[str, Any] = {"__name__": "__main__"}
    made: list[dict[str, Any]] = []
    for number, (kind, text) in enumerate(parts):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": _lines(text)}
        if kind == "code":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(text, f"cell {number}", "exec"), names)
            output = {"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())}
            cell |= {"execution_count": number, "outputs": [output] if printed.getvalue() else []}
        made.append(cell)
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": python, "language_info": {"name": "python"}}
    return {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main(path: Path) -> None:
    """Write the notebook of a script beside it."""
    notebook = executed(cells(path.read_text(encoding="utf-8")))
    path.with_suffix(".ipynb").write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
