"""The command as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.conftest import environment
from torus.cli import COMMANDS, main
from torus.cli import cache as cache_command


@pytest.mark.parametrize(
    "command", [[], *([name] for name in COMMANDS), *(["cache", n] for n in cache_command.COMMANDS)]
)
def test_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0 and text.startswith(" ".join(["usage: torus", *command]))


@pytest.mark.parametrize(
    "command", [[], ["nonsense"], ["cache"], ["cache", "nonsense"], ["cache", "list", "--limit", "x"]]
)
def test_a_command_that_is_not_one(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 2 and "error:" in capsys.readouterr().err


def test_it_is_light(tmp_path: Path) -> None:
    """Neither PyTorch nor JAX nor a client: a listing is there at once."""
    (tmp_path / "cache" / "default").mkdir(parents=True, mode=0o700)
    code = """
import runpy, sys
sys.argv = ["torus", "cache", "list"]
sys.orig_argv = ["python", "torus", "cache", "list"]
try:
    runpy.run_module("torus", run_name="__main__")
except SystemExit as ended:
    print(ended.code, [name for name in ("torch", "jax", "jaxlib", "numpy", "fsspec") if name in sys.modules])
"""
    env = environment(TORUS_CACHE_DIR=str(tmp_path / "cache"))
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "0 []", done


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "cache" / "default").mkdir(parents=True, mode=0o700)
    env = environment(TORUS_CACHE_DIR=str(tmp_path / "cache"))
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "torus", "cache", "list"]
    done = subprocess.run(command, env=env, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
