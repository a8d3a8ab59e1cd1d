from __future__ import annotations

import numpy as np
import pytest

from torus import runtime
from torus.runtime import memory


def test_synchronize_waits_for_live_arrays():
    arrays = [runtime.from_numpy(np.full((4,), i, "float32")) for i in range(3)]
    runtime.synchronize(0)
    assert all(runtime.is_ready(array) for array in arrays)
    with pytest.raises(IndexError):
        runtime.synchronize(99)


def test_memory_info():
    free, total = runtime.memory_info(0)
    assert 0 < free <= total


def test_control_groups_limit(tmp_path, monkeypatch):
    group = tmp_path / "a" / "b"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("7\n")
    (tmp_path / "a" / "memory.max").write_text("1000\n")
    (tmp_path / "a" / "memory.current").write_text("400\n")
    assert list(memory._limits(tmp_path, "/a/b", "memory.max", "memory.current")) == [(1000, 400)]
    monkeypatch.setattr(memory, "_control_group_limits", lambda: [(1000, 400)])
    assert memory._host_memory() == (600, 1000)
