"""Fixtures of the runtime tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"

ADD = """
module @torus attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<SIZExf32>, %arg1: tensor<SIZExf32>) -> tensor<SIZExf32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<SIZExf32>
    return %0 : tensor<SIZExf32>
  }
}
"""


def add_program(size: int) -> tuple[str, list[tuple[tuple[int, ...], str]]]:
    """StableHLO that adds two vectors, and the avals of its results; each size is another program."""
    return ADD.replace("SIZE", str(size)), [((size,), "float32")]


WITHOUT_TORCH = "import sys; sys.modules['torch'] = None\n"
"""The runtime must work where PyTorch is not installed, and starts faster without it."""


def environment(**variables: str) -> dict[str, str]:
    """This process's environment with torus on the path, without its settings, and with `variables`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TORUS_", "TORCH_TPU_", "TPU_", "XLA_FLAGS"))}
    path = os.pathsep.join(filter(None, (str(SOURCE), kept.get("PYTHONPATH"))))
    return kept | {"PYTHONPATH": path} | variables


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run code in a new interpreter without PyTorch; its cache is under ``tmp_path``."""

    def run(code: str, check: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
        env = environment(**{"TORUS_CACHE_DIR": str(tmp_path / "cache")} | variables)
        command = [sys.executable, "-c", WITHOUT_TORCH + code]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0 or not check, done.stderr
        return done

    return run
