"""A child forked after the first use must get an error, not hang; before it, the device must work."""

from __future__ import annotations

import pytest

from tests.device.process import run

pytestmark = pytest.mark.slow

FORK = """
    import os, torch, torus

    def in_child(action):
        read, write = os.pipe()
        if os.fork() == 0:
            try:
                said = str(action())
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
            os.write(write, said.encode())
            os._exit(0)
        os.close(write)
        os.wait()
        return os.read(read, 10000).decode()
"""


def test_after_the_first_use_it_is_an_error():
    code = (
        FORK
        + """
    x = torch.ones(3, device="tpu")
    y = x + x
    actions = [
        lambda: x + x, lambda: x * 3, lambda: x.cpu(), lambda: torch.ones(2).to("tpu"),
        lambda: torch.ones(2, device="tpu"),
        torch.tpu.synchronize, torch.tpu.init, torch.tpu.get_device_name, torch.tpu.mem_get_info,
    ]
    for action in actions:
        said = in_child(action)
        assert said.startswith("RuntimeError") and "forked child" in said and "spawn" in said, said
    assert in_child(torch.tpu._is_in_bad_fork) == "True" and not torch.tpu._is_in_bad_fork()
    assert in_child(lambda: torch.manual_seed(3).initial_seed()) == "3"
    assert in_child(torch.tpu.is_initialized) == "False"
    assert (x + x).tolist() == [2, 2, 2]
    print("done")
    """
    )
    assert run(code) == "done"


def test_before_the_first_use_it_works():
    code = (
        FORK
        + """
    print(in_child(lambda: (torch.ones(3, device="tpu") + 1).tolist()))
    """
    )
    assert run(code) == "[2.0, 2.0, 2.0]"
