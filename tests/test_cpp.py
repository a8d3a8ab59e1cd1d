"""The unit tests of the C++ core, which live in tests/cpp and run without the package: see scripts/test_cpp.sh."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "test_cpp.sh"


@pytest.mark.slow
def test_the_cpp_core() -> None:
    result = subprocess.run(
        ["bash", str(SCRIPT)], env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True
    )
    output = result.stdout + result.stderr
    assert result.returncode == 0, output
    summary = result.stdout.strip().splitlines()[-1]
    assert re.fullmatch(r"[1-9]\d* passed, 0 failed", summary), output
