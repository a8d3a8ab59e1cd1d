"""Warming a cache for a TPU that is not here: its keys are what the host would compute, as far as can be shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("libtpu", reason="libtpu, which has the TPU compiler, is not installed")

from torus.cli import main
from torus.runtime.disk_cache import DiskCache
from torus.twin.compiler import Compiler
from torus.twin.compiler.service import _ENVIRONMENT
from torus.twin.topology import Topology

SCRIPT = """
import torch, torus
x = torch.arange(12.0, device="tpu").view(3, 4)
print("value", (x @ x.T).sum().item())
"""

ON_THE_CHIPS_CLIENT = """
import json, sys
sys.orig_argv = ["", "-m", "torus"]  # does not import PyTorch
from torus.runtime import jaxlib_adapter, keys, lowering
import jax, jax.numpy as jnp
device = jaxlib_adapter.tpu_topology("v6e:1x1")[0]
programs = {
    "product": lambda x: x @ x, "cholesky": jnp.linalg.cholesky, "qr": lambda x: jnp.linalg.qr(x)[0],
    "eigh": lambda x: jnp.linalg.eigh(x)[0], "sort": lambda x: jnp.sort(x), "fft": lambda x: jnp.fft.fft(x).real,
    "bits": lambda x: jax.lax.rng_bit_generator(jnp.zeros(4, "uint32"), (8,))[1], "top": lambda x: jax.lax.top_k(x, 2),
}
avals = [((8, 8), "float32")]
same = {
    name: lowering.lower_for(device, fn, avals) == lowering.lower_ahead("tpu", fn, avals)
    for name, fn in programs.items()
}
print(json.dumps({"same": same, "environment": keys.environment(device)}))
"""


@pytest.fixture(scope="module")
def on_the_client() -> dict[str, dict[str, str]]:
    """What the client of the topology's devices gives, in a process that has libtpu."""
    command = [sys.executable, "-c", ON_THE_CHIPS_CLIENT]
    ran = subprocess.run(command, env=os.environ | _ENVIRONMENT, capture_output=True, text=True, check=True)
    found: dict[str, dict[str, str]] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_programs_have_the_text_that_the_chips_client_gives_them(on_the_client: dict[str, dict[str, str]]) -> None:
    assert all(on_the_client["same"].values()), on_the_client["same"]


def test_keys_share_what_they_share_on_the_chips_client(on_the_client: dict[str, dict[str, str]]) -> None:
    assert Compiler(Topology.parse("v6e:1x1")).environment() == on_the_client["environment"]


def test_a_script_leaves_its_programs_for_a_chip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORUS_CACHE_DIR", str(tmp_path))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    assert main(["cache", "warm", "--topology", "v6e:1x1", str(script)]) == 0
    printed = capfd.readouterr().out
    assert "value 1134.0" in printed
    assert "programs kept for v6e:1x1, 0 not" in printed
    assert "Only a chip can confirm" in printed
    cache = DiskCache(tmp_path / "default", 2**30)
    headers = [cache.header(kept.key) or {} for kept in cache.entries()]
    assert {header["components"]["device_kind"] for header in headers} == {"TPU v6 lite"}
    assert {header["components"]["platform"] for header in headers} == {"tpu"}
    assert len(list(cache.signatures())) >= len(headers) >= 3


def test_a_topology_that_does_not_exist_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "warm", "--topology", "v6e:3x3", str(tmp_path)]) == 2
    assert "v6e:3x3 does not exist; v6e has 1x1" in capsys.readouterr().err
