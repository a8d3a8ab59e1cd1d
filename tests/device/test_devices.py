from __future__ import annotations

import pytest
import torch

from tests.device.process import run


def test_one_device_is_there():
    assert torch.tpu.is_available()
    assert torch.tpu.device_count() == torch.accelerator.device_count()
    assert torch.tpu.current_device() == 0
    torch.tpu.init()
    assert torch.tpu.is_initialized()


def test_properties():
    properties = torch.tpu.get_device_properties()
    assert properties.name == torch.tpu.get_device_name(0)
    assert properties.platform in ("cpu", "cuda", "tpu")
    assert properties.platform != "cpu" or properties.name == "XLA:CPU host"
    assert properties.total_memory > 2**28
    assert torch.bfloat16 in torch.tpu.get_device_capability("tpu:0")["supported_dtypes"]


@pytest.mark.parametrize("device", [None, 0, "tpu", "tpu:0", torch.device("tpu"), torch.device("tpu", 0)])
def test_ways_to_name_a_device(device):
    torch.tpu.set_device(device if device is not None else 0)
    torch.tpu.synchronize(device)
    with torch.tpu.device(device):
        assert torch.tpu.current_device() == 0


@pytest.mark.parametrize(
    ("device", "error", "message"),
    [
        ("cpu", ValueError, "expected a tpu device, got cpu"),
        (99, RuntimeError, "tpu:99 does not exist"),
        ("tpu:99", RuntimeError, "tpu:99 does not exist"),
        (1.5, TypeError, "float"),
        (True, TypeError, "bool"),
    ],
)
def test_wrong_devices(device, error, message):
    for function in (
        torch.tpu.synchronize,
        torch.tpu.memory_allocated,
        torch.tpu.get_device_name,
        torch.tpu.set_device,
    ):
        with pytest.raises(error, match=message):
            function(device)


def test_negative_index_changes_nothing():
    torch.tpu.set_device(-1)
    with torch.tpu.device(-1):
        assert torch.tpu.current_device() == 0
    with torch.tpu.device_of(torch.ones(1)):
        assert torch.tpu.current_device() == 0


def test_two_virtual_devices():
    code = """
        import torch, torus, threading
        assert torch.tpu.device_count() == 2
        with torch.tpu.device(1):
            x = torch.ones(3, device="tpu")
            assert torch.tpu.current_device() == 1
        assert torch.tpu.current_device() == 0
        assert x.device == torch.device("tpu:1")
        with torch.tpu.device_of(x):
            assert torch.tpu.current_device() == 1
        seen = []
        torch.tpu.set_device(1)
        thread = threading.Thread(target=lambda: seen.append(torch.tpu.current_device())); thread.start(); thread.join()
        assert seen == [0] and torch.tpu.current_device() == 1
        torch.tpu.set_device(0)
        y = x.to("tpu:0") + torch.ones(3, device="tpu")
        assert y.device.index == 0 and y.tolist() == [2, 2, 2]
        torch.manual_seed(3)
        a, b = (torch.rand(4, device=f"tpu:{i}").cpu() for i in range(2))
        assert torch.equal(a, b)
        with torch.random.fork_rng(devices=[0, 1], device_type="tpu"):
            torch.rand(4, device="tpu:1")
        assert len(torch.tpu.get_rng_state_all()) == len(torch.tpu.default_generators) == 2
        torch.accelerator.set_device_index(1)
        assert torch.tpu.current_device() == 1
        assert torch.tpu.can_device_access_peer(0, 1)
        print("done")
    """
    assert run(code, TORUS_DEVICE_COUNT="2", TORUS_PLATFORM="cpu") == "done"
