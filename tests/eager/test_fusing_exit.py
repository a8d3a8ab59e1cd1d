"""The process ends cleanly whatever is recorded, runs or compiles, and a fork is told that it cannot use the device."""

from __future__ import annotations

import pytest

from tests.device.process import run_unchecked

pytestmark = pytest.mark.slow

HEAD = """
import atexit, os, signal, sys, threading
import torch, torus
from torus.backend.eager import fuse
torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE
x = torch.ones(4, device="tpu")
"""

ENDS = {
    "pending": ("y = (x + 3) * 2", ""),
    "a compile in progress": (
        """
for _ in range(3):
    y = x
    for k in range(150):
        y = y.sin() * y.cos() + k
    print(y.isfinite().all().item())
""",
        "True\nTrue\nTrue",
    ),
    "a thread that recorded": (
        """
out = []
thread = threading.Thread(target=lambda: out.append(x * 5 + 1))
thread.start()
thread.join()
""",
        "",
    ),
    "exit in the middle": ("y = (x + 3) * 2\nsys.exit(0)", ""),
    "a tensor of a module": ("torch.keep = (x + 3) * 2\nprint(torch.keep.sum().item()); torch.keep.mul_(2)", "32.0"),
    "backward": ("w = x.clone().requires_grad_()\n(w * x).sum().backward()", ""),
    "foreground": ("torch.tpu.fusing = 'foreground'\ny = (x + 3) * 2", ""),
}


@pytest.mark.parametrize(("code", "output"), ENDS.values(), ids=ENDS)
def test_exit_is_clean(code: str, output: str) -> None:
    result = run_unchecked(HEAD + code, TORCH_DEVICE_BACKEND_AUTOLOAD="0", TORUS_FUSING="background")
    assert (result.returncode, result.stderr, result.stdout.strip()) == (0, "", output)


def test_a_failure_that_nobody_has_read_is_said_at_exit() -> None:
    code = "y = x.index_select(0, torch.tensor([9], device='tpu'))"
    result = run_unchecked(HEAD + code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert (result.returncode, result.stdout) == (0, "")
    assert "OutOfBounds: index 9 is out of bounds" in result.stderr


def test_an_op_in_an_atexit_function() -> None:
    code = """
def last():
    print((x * 12).cosh().isfinite().all().item())

atexit.register(last)
"""
    result = run_unchecked(HEAD + code, TORCH_DEVICE_BACKEND_AUTOLOAD="0", TORCH_TPU_TIER2_COMPILATION_CACHE="disabled")
    assert (result.returncode, result.stderr, result.stdout.strip()) == (0, "", "True")


def test_a_fork_with_pending_ops() -> None:
    code = """
y = (x + 3) * 2
child = os.fork()
if child == 0:
    signal.alarm(20)
    try:
        y.sum().item()
    except RuntimeError as error:
        print("forked child" in str(error), flush=True)
    sys.exit(0)
print(os.waitpid(child, 0)[1], flush=True)
print(y.sum().item())
"""
    result = run_unchecked(HEAD + code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.split() == ["True", "0", "32.0"]
