"""Running Python in a new process, for what a process can show once only."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"


def run(code: str, *options: str, **variables: str) -> str:
    """What `code` prints. Fails with the process's own error."""
    result = run_unchecked(code, *options, **variables)
    assert result.returncode == 0, f"exit status {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result.stdout.strip()


def run_unchecked(code: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (str(SOURCES), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **variables}
    command = [sys.executable, *options, "-c", textwrap.dedent(code)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
