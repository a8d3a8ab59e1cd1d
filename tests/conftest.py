"""Shared by all tests: the device, and seeds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from torus.runtime.platform import choose

# Compiled programs are kept between runs, apart from the user's own, so that repeated runs are quick.
os.environ.setdefault("TORUS_CACHE_DIR", str(Path(__file__).parents[1] / ".cache" / "torus"))
if choose() == "cpu":  # or JAX would look for a TPU wherever the TPU compiler is installed
    os.environ.setdefault("JAX_PLATFORMS", "cpu")


_LONGEST = ("test_cpp.py", "test_benchmarks.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests start first, so that at the end no process waits for another one's."""
    items.sort(key=lambda item: item.path.name not in _LONGEST)


@pytest.fixture(autouse=True)
def _fusing() -> None:
    """Many recordings that were new in earlier tests do not make fusing pause in this one."""
    if "torus._C" in sys.modules:
        sys.modules["torus._C"].end_storm()


@pytest.fixture
def device() -> str:
    """The device under test."""
    import torus  # noqa: F401  makes the device exist where the package is not installed

    return "tpu"


@pytest.fixture
def seed() -> Iterator[int]:
    """PyTorch's generators seeded on every device, and put back afterwards."""
    import torch

    import torus  # noqa: F401

    with torch.random.fork_rng(devices=range(torch.tpu.device_count()), device_type="tpu"):
        torch.manual_seed(0)
        yield 0
