"""Which platform this process runs on, decided by cheap checks of files and packages; no client is started here."""

from __future__ import annotations

import glob
import importlib.util
import os
import re
from functools import cache

from torus import settings

_CUDA_PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin")


def tpu_chips() -> int:
    """How many TPU chips this machine shows, limited by ``TPU_VISIBLE_CHIPS``."""
    chips = len(glob.glob("/dev/accel[0-9]*")) or len(glob.glob("/dev/vfio/[0-9]*"))
    visible = os.environ.get("TPU_VISIBLE_CHIPS", "").strip()
    return min(chips, len(visible.split(","))) if visible else chips


def cuda_devices() -> int:
    """How many NVIDIA GPUs this machine shows, limited by ``CUDA_VISIBLE_DEVICES``."""
    present = sum(1 for path in glob.glob("/dev/nvidia[0-9]*") if re.fullmatch(r"/dev/nvidia\d+", path))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return present if visible is None else min(present, _visible_cuda(visible))


def _visible_cuda(text: str) -> int:
    """CUDA reads the list up to its first invalid entry."""
    count = 0
    for entry in text.split(","):
        entry = entry.strip()
        if not entry or entry.startswith("-"):
            break
        count += 1
    return count


@cache
def _installed(*modules: str) -> bool:
    return any(importlib.util.find_spec(module) is not None for module in modules)


def _why_not_tpu() -> str | None:
    if not _installed("libtpu"):
        return "the package libtpu is not installed (pip install 'torus[tpu]')"
    if tpu_chips() == 0:
        return "no TPU chip was found at /dev/accel* or /dev/vfio/* (run on a TPU machine, or unset TORUS_PLATFORM)"
    return None


def _why_not_cuda() -> str | None:
    if not _installed(*_CUDA_PLUGINS):
        return "no GPU plugin of JAX is installed (pip install 'torus[gpu]')"
    if cuda_devices() == 0:
        fix = "install the NVIDIA driver, or unset TORUS_PLATFORM"
        return f"no GPU was found at /dev/nvidia* within CUDA_VISIBLE_DEVICES ({fix})"
    return None


_WHY_NOT = {"tpu": _why_not_tpu, "cuda": _why_not_cuda}


def choose() -> str:
    """``"tpu"``, ``"cuda"`` or ``"cpu"``: the forced platform, else the best one present.

    Raises RuntimeError when ``TORUS_PLATFORM`` forces a platform that is not there, saying what was not found and the
    fix. ``TORUS_SIMULATE`` needs the host.
    """
    forced = settings.get("platform")
    if (simulated := settings.get("simulate")) is not None:
        if forced not in (None, "cpu"):
            raise RuntimeError(
                f"TORUS_PLATFORM={forced} cannot be used with TORUS_SIMULATE={simulated.name}: the host stands in for "
                "the chips (unset one of them)"
            )
        return "cpu"
    if forced is None:
        return next((name for name, why_not in _WHY_NOT.items() if why_not() is None), "cpu")
    reason = _WHY_NOT[forced]() if forced in _WHY_NOT else None
    if reason is not None:
        raise RuntimeError(f"TORUS_PLATFORM={forced} cannot be used: {reason}")
    return str(forced)


def count(platform: str) -> int:
    """How many devices a client of `platform` is expected to have."""
    if platform == "cpu":
        return int(settings.get("device_count"))
    return tpu_chips() if platform == "tpu" else cuda_devices()
