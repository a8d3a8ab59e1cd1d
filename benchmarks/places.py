"""The places a measurement can run in: the device, PyTorch's own CPU, and other packages that offer the like.

A place is entered once, in a process of its own, since two of these cannot share a process.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

NEEDS = {
    **dict.fromkeys(("tpu", "tpu_fused", "tpu_compiled", "tpu_step"), "torus"),
    **dict.fromkeys(("cpu", "cpu_threads", "inductor"), "torch"),
    **{name: name for name in ("jax", "torchax", "torch_xla")},
}
"""The module that each place needs; a place whose module cannot be found is "not installed"."""

TITLES = {
    "tpu": "tpu",
    "tpu_fused": "tpu, defer and fuse",
    "tpu_compiled": "tpu, torch.compile",
    "tpu_step": "tpu, train_step",
    "jax": "jax.jit",
    "inductor": "CPU, Inductor",
    "cpu": "CPU eager, 1 thread",
    "cpu_threads": "CPU eager, default threads",
    "torchax": "torchax eager",
    "torch_xla": "torch_xla eager",
}
PEERS = ("torchax", "torch_xla")
PACKAGES = ("torus", "torch", "jax", "jaxlib", "transformers", *PEERS)


@dataclass(frozen=True)
class Place:
    """A device string, and how to wait for everything that was sent to it (jax: wait for a result instead)."""

    name: str
    device: str
    synchronize: Callable[[], object]


def nothing() -> None:
    """Wait for the CPU, which is always done."""


def enter(name: str) -> Place:
    """Load what `name` needs and return the place. Raises ModuleNotFoundError where it is not installed."""
    if importlib.util.find_spec(NEEDS[name]) is None:
        raise ModuleNotFoundError(f"{NEEDS[name]} is not installed", name=NEEDS[name])
    return _ENTER[name]()


def describe(place: Place | None) -> dict[str, Any]:
    """Versions in this process, and the name and threads of the place."""
    found: dict[str, Any] = {"versions": {"python": platform.python_version(), **_versions()}}
    if place is None:
        return found
    import torch

    found["threads"] = torch.get_num_threads()
    found["device_name"] = torch.tpu.get_device_name() if place.device == "tpu" else place.device
    return found


def _versions() -> dict[str, str | None]:
    return {package: _version(package) for package in PACKAGES}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "from its sources" if importlib.util.find_spec(package) else None


def _tpu() -> Place:
    import torch

    import torus  # noqa: F401  makes the device exist

    return Place("tpu", "tpu", torch.tpu.synchronize)


def _tpu_fused() -> Place:
    import torch

    place = _tpu()
    torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE
    torch.tpu.fusing = "foreground"
    return Place("tpu_fused", place.device, place.synchronize)


def _tpu_as(name: str) -> Callable[[], Place]:
    def enter() -> Place:
        place = _tpu()
        return Place(name, place.device, place.synchronize)

    return enter


def _inductor() -> Place:
    return Place("inductor", "cpu", nothing)


def _jax() -> Place:
    import jax

    if platforms := os.environ.get("TORUS_PLATFORM"):
        jax.config.update("jax_platforms", platforms)
    jax.config.update("jax_default_matmul_precision", "highest")
    return Place("jax", "jax", nothing)


def _cpu() -> Place:
    import torch

    torch.set_num_threads(1)
    return Place("cpu", "cpu", nothing)


def _cpu_threads() -> Place:
    return Place("cpu_threads", "cpu", nothing)


def _torchax() -> Place:
    import jax
    import torch
    import torchax

    torchax.enable_globally()
    last = torch.ones(4, 4, device="jax")
    return Place("torchax", "jax", lambda: jax.block_until_ready((last + last).jax()))


def _torch_xla() -> Place:
    import torch_xla
    import torch_xla.core.xla_model
    import torch_xla.experimental

    torch_xla.experimental.eager_mode(True)
    return Place("torch_xla", str(torch_xla.device()), torch_xla.core.xla_model.wait_device_ops)


_ENTER = {
    "tpu": _tpu,
    "tpu_fused": _tpu_fused,
    "tpu_compiled": _tpu_as("tpu_compiled"),
    "tpu_step": _tpu_as("tpu_step"),
    "inductor": _inductor,
    "jax": _jax,
    "cpu": _cpu,
    "cpu_threads": _cpu_threads,
    "torchax": _torchax,
    "torch_xla": _torch_xla,
}
