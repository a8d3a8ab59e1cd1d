"""What comes in the middle of a run of recorded ops, such as Ctrl-C, loses nothing. Each in a process of its own."""

from __future__ import annotations

import pytest

from tests.device.process import run

pytestmark = pytest.mark.slow

HEAD = """
import os, warnings
import torch, torus
from torus import runtime
from torus.backend.eager import fuse, seam

torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE
torch.tpu.fusing = "foreground"
fuse.Segment.key = lambda self: os.urandom(8)  # nothing is on disk
x = torch.arange(12.0, device="tpu").reshape(4, 3)
torch.tpu.synchronize()

def broken(error):
    def raises(*args):
        raise error
    return raises

def tried(read):
    try:
        return read()
    except BaseException as error:
        return type(error).__name__
"""


def outcome(body: str) -> list[str]:
    return run(HEAD + body, TORCH_DEVICE_BACKEND_AUTOLOAD="0").splitlines()


STUCK = "an exception in the middle of a run fails all that the trace holds, also what was not to blame"


def test_an_interrupt_while_compiling() -> None:
    found = outcome("""
compose, fuse.compose = fuse.compose, broken(KeyboardInterrupt())
y = (x + 1) * 2
print(tried(lambda: y.sum().item()))
fuse.compose = compose
print(tried(lambda: y.sum().item()), tried(lambda: (x * 2).sum().item()), tried(torch.tpu.synchronize))
""")
    assert found == ["KeyboardInterrupt", "156.0 132.0 None"]


def test_a_warning_that_is_an_error() -> None:
    found = outcome("""
compose, fuse.compose = fuse.compose, broken(RuntimeError("planted"))
warnings.simplefilter("error")
y = (x + 1) * 2
print(tried(lambda: y.sum().item()))
fuse.compose = compose
print(tried(lambda: y.sum().item()), tried(lambda: (x * 2).sum().item()), tried(torch.tpu.synchronize))
""")
    assert found[-1] == "156.0 132.0 None"


def test_a_cache_that_cannot_be_read() -> None:
    found = outcome("""
warnings.simplefilter("ignore")
lookup, runtime.programs.lookup_signature = runtime.programs.lookup_signature, broken(OSError("planted"))
y = (x + 1) * 2
print(tried(lambda: y.sum().item()))
runtime.programs.lookup_signature = lookup
print(tried(lambda: y.sum().item()), tried(lambda: (x * 2).sum().item()), tried(torch.tpu.synchronize))
""")
    assert found[-1] == "156.0 132.0 None"


def test_an_interrupt_while_ops_run() -> None:
    found = outcome("""
torch.tpu.fusing = "never"
_ = (x + 1).sum().item()
load = seam.load

def interrupted(recipe):
    seam.load = load
    raise KeyboardInterrupt

seam.load = interrupted
x.mul_(2)
print(tried(lambda: x.sum().item()))
print(tried(lambda: x.sum().item()))
""")
    assert found == ["KeyboardInterrupt", "132.0"]


def test_a_storm_is_reported_where_warnings_are_errors() -> None:
    found = outcome("""
import random
warnings.simplefilter("error", fuse.FusionWarning)
fuse.Segment.key = lambda self: b"nothing is on disk"
choose = random.Random(0)
raised = 0
for _ in range(200):
    y = x
    for _ in range(10):
        y = choose.choice([torch.neg, torch.abs, torch.relu])(y)
    raised += tried(lambda: y.sum().item()) == "FusionWarning"
print(raised, tried(lambda: (x + 0).sum().item()))
""")
    assert found == ["0 66.0"]  # it is printed: the read has its value
