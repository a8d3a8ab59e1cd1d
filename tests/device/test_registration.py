"""What importing does and does not do."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest
import torch

import torus
from tests.device.process import SOURCES, run, run_unchecked
from torus import backend

pytestmark = pytest.mark.slow


def test_device_exists():
    assert torch.device("tpu").type == "tpu"
    assert torch._C._get_privateuse1_backend_name() == "tpu"
    assert torch.tpu is backend.device


def test_import_starts_no_client_and_prints_nothing():
    code = """
        import torch, torus, sys
        assert not torus.runtime.is_started()
        assert "jax" not in sys.modules and "jaxlib" not in sys.modules
        assert not torch.tpu.is_initialized()
        assert torch.tpu.device_count() == 3
    """
    result = run_unchecked(code, TORUS_DEVICE_COUNT="3")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_import_is_cheap():
    code = """
        import time
        start = time.process_time()
        import torch
        middle = time.process_time()
        import torus
        print((time.process_time() - middle) / (middle - start))
    """
    options = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONDONTWRITEBYTECODE": ""}
    of_torch = [float(run(code, **options)) for _ in range(3)]  # the first one may also compile the sources
    assert min(of_torch) < 0.2


def test_every_rule_has_an_op():
    assert backend.unknown_rules == []


def test_registering_again_does_nothing():
    backend.register()
    torus._autoload()


def test_threads_register_once():
    code = """
        import threading, torch
        threads = [threading.Thread(target=lambda: __import__("torus")) for _ in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        print(torch.ones(2, device="tpu").sum().item())
    """
    assert run(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "2.0"


def test_autoload_calls_back_into_a_half_imported_package():
    # What PyTorch's autoload does at the end of its own import, when the user has imported torus first.
    code = f"""
        import sys
        sys.path.insert(0, {str(SOURCES)!r})
        import importlib.metadata as metadata
        found = metadata.entry_points
        point = metadata.EntryPoint("torus", "torus:_autoload", "torch.backends")
        metadata.entry_points = lambda **kw: (point,) if kw.get("group") == "torch.backends" else found(**kw)
        import torus
        import torch
        print(torch.device("tpu"), torch.tpu.device_count())
    """
    assert run(code) == "tpu 1"


def test_torch_alone_is_enough_once_installed():
    if not any(point.value == "torus:_autoload" for point in entry_points(group="torch.backends")):
        pytest.skip("the package is used from its sources, its entry point is not installed")
    assert run("import torch; print(torch.ones(2, device='tpu').is_tpu)") == "True"
    assert run("import torch; print(hasattr(torch, 'tpu'))", TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "False"


def test_another_package_holds_the_slot():
    code = """
        import torch
        torch.utils.rename_privateuse1_backend("npu")
        import torus
    """
    result = run_unchecked(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert result.returncode == 1
    message = result.stderr.splitlines()[-1]
    assert message.startswith("ImportError") and '"npu"' in message and "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in message


def test_without_torch_the_runtime_is_usable():
    code = f"""
        import sys
        sys.path.insert(0, {str(SOURCES)!r})
        import torus
        from torus import runtime
        print(runtime.platform_name(), runtime.expected_device_count(), "torch" in sys.modules)
    """
    assert run(code, "-I", "-S", TORUS_PLATFORM="cpu") == "cpu 1 False"


def test_a_platform_that_is_missing_is_reported_at_first_use():
    code = """
        import torch, torus
        print(torch.tpu.is_available())
        torch.ones(2, device="tpu") + 1
    """
    result = run_unchecked(code, TORUS_PLATFORM="tpu")
    assert result.stdout.strip() == "False"
    assert result.returncode == 1 and "TORUS_PLATFORM=tpu cannot be used" in result.stderr.splitlines()[-1]


def test_methods_are_generated():
    x = torch.ones(2).tpu()
    assert x.is_tpu and not x.cpu().is_tpu
    assert torch.nn.Linear(2, 2).tpu().weight.is_tpu
    assert x.untyped_storage().is_tpu
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2, 1)])
    assert packed.tpu().is_tpu


def test_submodules_are_not_copied():
    import torch.tpu.cache as cache

    assert cache is torch.tpu.cache
