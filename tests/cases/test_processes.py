"""Behaviour that only a new process can show, rows B1, B8, B28 and B33: ``pytest -k b08`` finds a row."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import torus  # noqa: F401  makes the device exist where the package is not installed
from tests.device.process import run, run_unchecked

pytestmark = pytest.mark.slow

TPU = "tpu"


# --- B1: choice of the platform


def test_b01_no_accelerator_runs_on_the_host() -> None:
    code = "import torch, torus; print(torch.tpu.get_device_name(), torch.ones(2, device='tpu').sum().item())"
    assert run(code, CUDA_VISIBLE_DEVICES="", TORUS_PLATFORM="cpu") == "XLA:CPU host 2.0"


def test_b01_a_plugin_that_fails_is_reported_once() -> None:
    out = run(
        """
        import warnings
        import torch, torus
        from torus.runtime import jaxlib_adapter, platform

        def broken(name):
            raise RuntimeError("the plugin does not load")
        platform.choose = lambda: "cuda"
        jaxlib_adapter.plugin_devices = broken
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(3):
                total = torch.ones(2, device="tpu").sum().item()
        said = [str(w.message) for w in seen if "the plugin does not load" in str(w.message)]
        print(torch.tpu.get_device_name(), total, len(said))
        """
    )
    assert out == "XLA:CPU host 2.0 1"


def test_b01_a_forced_platform_that_is_missing() -> None:
    code = """
    import torch, torus
    try:
        torch.ones(2, device="tpu")
    except RuntimeError as error:
        print(error)
    """
    said = run(code, TORUS_PLATFORM="tpu", TPU_VISIBLE_CHIPS="")
    assert "TORUS_PLATFORM=tpu cannot be used" in said
    assert "pip install" in said or "unset TORUS_PLATFORM" in said


# --- B8, B28, B33: what takes a new process


def test_b08_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    script = """
    import torch, torus
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters())
    for i in range(2):
        x = torch.randn(5, 8, device="tpu")
        y = torch.randint(4, (5,), device="tpu")
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[:, :]), y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(sum(p.sum() for p in model.parameters()).item(), torch.tpu.counters()["compiles"])
    """
    (first, cold), (second, warm) = (run(script, TORUS_CACHE_DIR=str(tmp_path)).split() for _ in range(2))
    assert int(cold) > 10
    assert int(warm) == 0
    assert first == second


def test_b28_load_without_this_package(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    model = nn.Linear(3, 2).to(TPU)
    torch.save({"state": model.state_dict(), "extra": torch.arange(4, device=TPU)}, path)
    loaded = run_unchecked(
        f"""
        import sys
        sys.modules["torus"] = None  # not importable, and autoload is off
        import torch
        found = torch.load({str(path)!r}, map_location="cpu")
        print(found["state"]["weight"].tolist(), found["extra"].tolist())
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
        PYTHONPATH="",
    )
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.strip() == f"{model.weight.tolist()} [0, 1, 2, 3]"


def test_b33_host_backward_before_the_first_device_backward() -> None:
    out = run(
        """
        import torch, torus
        x = torch.ones(3, requires_grad=True)
        (x * 2).sum().backward()
        y = torch.ones(3, device="tpu", requires_grad=True)
        (y * 3).sum().backward()
        z = torch.ones(3, requires_grad=True)
        (z.to("tpu") * 4).cpu().sum().backward()
        print(x.grad.tolist(), y.grad.tolist(), z.grad.tolist())
        """
    )
    assert out == "[2.0, 2.0, 2.0] [3.0, 3.0, 3.0] [4.0, 4.0, 4.0]"
