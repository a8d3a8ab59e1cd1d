"""Print the requirements of extras in pyproject.toml, one a line, to install them before the package is built."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def requirements(extras: list[str]) -> list[str]:
    """What the package itself and the named extras need, in the order of pyproject.toml."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *(r for extra in extras for r in project["optional-dependencies"][extra])]


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1].split(","))))
