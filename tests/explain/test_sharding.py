"""Many devices give the bits of one at one size of chunk; each test runs where there are four."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import distributed

from torus.explain import explain

PATIENCE = timedelta(seconds=120)

FOUR = """
import gc, torch, torus
from torch import nn
from torus.explain import explain

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(12, 512), nn.Tanh(), nn.Linear(512, 3)).eval().to("tpu")
x, chosen = torch.randn(2, 12).to("tpu"), torch.tensor([2, 0]).to("tpu")

def both(method, mode, **options):
    given = dict(method=method, mode=mode, chunk=4, layer="1", **options)
    one, four = (explain(net, x, chosen, devices=devices, **given) for devices in (None, 4))
    assert torch.equal(one.attribution, four.attribution), method
    assert four.attribution.device == x.device
    assert four.extras["sharding"] == "4 devices, as asked for"
    return four

segments = torch.arange(512) // 32
both("shapley_sampling", "fused", permutations=8, segments=segments)
assert torch.tpu.max_memory_allocated(3) > sum(p.nbytes for p in net.parameters())
both("kernel_shap", "strict", samples=64, segments=segments)
both("saliency", "strict")
gc.collect()
assert torch.tpu.memory_allocated(3) == 0, torch.tpu.memory_summary(3)
found = explain(net, x, chosen, method="kernel_shap", samples=64, segments=segments, chunk=4, layer="1", devices="auto")
assert "4 devices take" in found.extras["sharding"], found.extras

# sixteen copies at once do not fit one device of this size, and fit four
given = dict(method="kernel_shap", mode="strict", samples=64)
torch.tpu.reset_peak_memory_stats()
one = explain(net, x, chosen, chunk=4, **given)
limit = torch.tpu.max_memory_allocated() * 5 // 4
for index in range(4):
    torch.tpu.set_memory_limit(limit, index)
try:
    explain(net, x, chosen, chunk=16, **given)
except torch.OutOfMemoryError as error:
    assert "of the limit of" in str(error)
else:
    raise AssertionError("sixteen copies fit one device")
four = explain(net, x, chosen, chunk=4, devices=4, **given)
assert torch.equal(one.attribution, four.attribution)
assert all(torch.tpu.max_memory_allocated(index) <= limit for index in range(4))
print("done")
"""

SECOND = """
import sys
from tests.explain.test_sharding import process
process(1, sys.argv[1])
print("done")
"""


def product(x: torch.Tensor) -> torch.Tensor:
    return (x + torch.arange(5)).prod(1).tanh()


def process(rank: int, store: str) -> None:
    """What each of two processes does."""
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=PATIENCE)
    try:
        given = {"inputs": torch.linspace(-1, 1, 10).reshape(2, 5), "method": "exact_shapley", "chunk": 3}
        one, two = explain(product, **given), explain(product, devices="processes", **given)
        assert torch.equal(one.attribution, two.attribution)
        assert two.extras["sharding"] == "2 processes, as asked for"
    finally:
        distributed.destroy_process_group()


def started(script: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    path = os.pathsep.join(filter(None, (str(root / "src"), str(root), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONPATH": path} | environment,
    )


def finished(process: subprocess.Popen[str]) -> None:
    output = process.communicate(timeout=300)[0]
    assert output.endswith("done\n"), output


def test_four_devices_agree_bitwise_with_one() -> None:
    finished(started(FOUR, TORUS_DEVICE_COUNT="4"))


def test_two_processes_agree_bitwise_with_one(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    second = started(SECOND, store)
    try:
        process(0, store)
        finished(second)
    finally:
        second.kill()


def test_one_device_is_not_shared_and_says_so() -> None:
    found = explain(torch.nn.Linear(3, 1), torch.ones(1, 3), method="exact_shapley", devices="auto")
    assert found.extras["sharding"] == "there is one device"


@pytest.mark.parametrize(
    ("devices", "words"),
    [(3, "there are 1 of the kind 'cpu'"), ("best", "'auto' or 'processes'"), ([], "a number"), ("processes", "init_")],
)
def test_devices_that_are_not_there(devices: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        explain(torch.nn.Linear(3, 1), torch.ones(1, 3), devices=devices)  # type: ignore[arg-type]
