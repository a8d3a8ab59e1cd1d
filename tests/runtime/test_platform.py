"""Which platform is chosen, without starting a client."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from torus.runtime import client, platform

Python = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretend that some packages and device files are there."""
    monkeypatch.delenv("TORUS_PLATFORM", raising=False)
    monkeypatch.delenv("TPU_VISIBLE_CHIPS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def pretend(packages: tuple[str, ...] = (), accel: int = 0, nvidia: int = 0, vfio: int = 0) -> None:
        files = {
            "/dev/accel[0-9]*": [f"/dev/accel{i}" for i in range(accel)],
            "/dev/vfio/[0-9]*": [f"/dev/vfio/{i}" for i in range(vfio)],
            "/dev/nvidia[0-9]*": [f"/dev/nvidia{i}" for i in range(nvidia)],
        }
        monkeypatch.setattr(platform, "_installed", lambda *modules: any(m in packages for m in modules))
        monkeypatch.setattr(platform.glob, "glob", files.__getitem__)

    return pretend


@pytest.mark.parametrize(
    ("machine_has", "chosen", "count"),
    [
        ({}, "cpu", 1),
        ({"packages": ("libtpu",)}, "cpu", 1),
        ({"accel": 4}, "cpu", 1),
        ({"packages": ("libtpu",), "accel": 4}, "tpu", 4),
        ({"packages": ("libtpu",), "vfio": 8}, "tpu", 8),
        ({"packages": ("jax_cuda13_plugin",), "nvidia": 2}, "cuda", 2),
        ({"packages": ("jax_cuda12_plugin",), "nvidia": 1}, "cuda", 1),
        ({"packages": ("jax_cuda13_plugin",)}, "cpu", 1),
        ({"nvidia": 2}, "cpu", 1),
        ({"packages": ("libtpu", "jax_cuda13_plugin"), "accel": 1, "nvidia": 1}, "tpu", 1),
    ],
)
def test_the_best_platform_present(
    machine: Callable[..., None], machine_has: dict[str, object], chosen: str, count: int
) -> None:
    machine(**machine_has)
    assert platform.choose() == chosen
    assert platform.count(chosen) == count


def test_a_forced_platform(machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    machine(packages=("libtpu",), accel=4)
    monkeypatch.setenv("TORUS_PLATFORM", "cpu")
    assert platform.choose() == "cpu"


@pytest.mark.parametrize(
    ("forced", "machine_has", "message"),
    [
        ("tpu", {}, r"TORUS_PLATFORM=tpu .*libtpu is not installed .*pip install 'torus\[tpu\]'"),
        ("tpu", {"packages": ("libtpu",)}, "no TPU chip was found at /dev/accel"),
        ("cuda", {}, r"TORUS_PLATFORM=cuda .*no GPU plugin .*pip install 'torus\[gpu\]'"),
        ("cuda", {"packages": ("jax_cuda13_plugin",)}, "no GPU was found at /dev/nvidia"),
    ],
)
def test_a_forced_platform_that_is_missing_names_the_fix(
    machine: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    forced: str,
    machine_has: dict[str, object],
    message: str,
) -> None:
    machine(**machine_has)
    monkeypatch.setenv("TORUS_PLATFORM", forced)
    with pytest.raises(RuntimeError, match=message):
        platform.choose()


@pytest.mark.parametrize(
    ("visible", "count"), [("0", 1), ("0,2", 2), ("", 0), ("-1", 0), ("0,-1,1", 1), ("0,1,2,3,4,5", 4)]
)
def test_visible_gpus(machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch, visible: str, count: int) -> None:
    machine(nvidia=4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert platform.cuda_devices() == count


def test_visible_chips(machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    machine(accel=4)
    monkeypatch.setenv("TPU_VISIBLE_CHIPS", "0,1")
    assert platform.tpu_chips() == 2


def test_virtual_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORUS_DEVICE_COUNT", "3")
    assert platform.count("cpu") == 3


@pytest.fixture
def broken_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU plugin that is installed and does not start; every call makes a new client."""
    from torus.runtime import jaxlib_adapter

    def fail(name: str) -> list[object]:
        raise RuntimeError("driver too old")

    monkeypatch.setattr(jaxlib_adapter, "plugin_devices", fail)
    monkeypatch.setattr(platform, "choose", lambda: "cuda")
    monkeypatch.setattr(client, "_client", None)


@pytest.mark.usefixtures("broken_plugin")
def test_a_plugin_that_does_not_start_gives_way_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORUS_PLATFORM", raising=False)
    with pytest.warns(RuntimeWarning, match="cuda plugin did not start, so torus runs on XLA:CPU .*driver too old"):
        assert client.device_name(0) == "XLA:CPU host"
    assert client.platform_name() == "cpu"
    assert client.expected_device_count() == client.device_count()


@pytest.mark.usefixtures("broken_plugin")
def test_a_forced_plugin_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORUS_PLATFORM", "cuda")
    with pytest.raises(
        RuntimeError, match="TORUS_PLATFORM=cuda cannot be used: its plugin did not start: driver too old"
    ):
        client.client()


def test_the_forced_error_reaches_a_user(python: Python) -> None:
    done = python("import torus.runtime as r; r.device_count()", check=False, TORUS_PLATFORM="tpu")
    assert done.returncode == 1
    assert "RuntimeError: TORUS_PLATFORM=tpu cannot be used" in done.stderr
