"""The end of a process waits for the autograd engine, and not for ever."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from torus.backend.device.ending import wait_for_engine


def thread(folder: Path, name: str, state: str) -> None:
    folder.mkdir()
    (folder / "comm").write_text(f"{name}\n")
    (folder / "stat").write_text(f"7 ({name}) {state} 1 7 7 0\n")


def test_it_waits_for_a_thread_that_runs(tmp_path: Path) -> None:
    thread(tmp_path / "1", "python", "R")
    assert wait_for_engine(tasks=tmp_path)
    thread(tmp_path / "2", "pt_autograd_0) (", "R")
    start = time.monotonic()
    assert not wait_for_engine(limit=0.02, tasks=tmp_path)
    assert time.monotonic() - start >= 0.02
    (tmp_path / "2" / "stat").write_text("8 (pt_autograd_0) () S 1 7 7 0\n")
    assert wait_for_engine(tasks=tmp_path)


def test_after_a_backward_pass_the_engine_sleeps(device: str) -> None:
    x = torch.ones(3, device=device, requires_grad=True)
    (x * 3).sum().backward()
    assert wait_for_engine(limit=5)


def test_without_a_list_of_threads_there_is_nothing_to_wait_for(tmp_path: Path) -> None:
    assert wait_for_engine(tasks=tmp_path / "none")
