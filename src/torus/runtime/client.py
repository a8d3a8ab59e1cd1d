"""The client of this process: started once, at the first call that needs a device."""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torus import settings
from torus.runtime import platform as _platform


@dataclass(frozen=True)
class Client:
    """A started client. `devices` and `placements` are indexed by the index of ``tpu:i``."""

    platform: str
    devices: tuple[Any, ...]
    placements: tuple[Any, ...]
    adapter: ModuleType
    simulates: Any = None
    """The `torus.twin.topology.Topology` that the host stands in for."""


_client: Client | None = None
_lock = threading.Lock()


def client() -> Client:
    """The client, started if this is the first call. Raises RuntimeError when a forced platform cannot be used."""
    global _client
    if _client is None:
        with _lock:
            if _client is None:
                _client = _start(_platform.choose())
                _prefetch()
    return _client


def _prefetch() -> None:
    from torus.runtime import prefetch, programs

    prefetch.begin(programs.cache)


def _start(platform: str) -> Client:
    from torus.runtime import jaxlib_adapter as adapter

    settings.get("hbm_limit")  # a text that is not understood is reported by the first use of the device
    devices = adapter.cpu_devices(_platform.count("cpu")) if platform == "cpu" else _plugin_devices(platform)
    if not devices:
        return _start("cpu")
    placements = tuple(adapter.Placement(device) for device in devices)
    return Client(platform, tuple(devices), placements, adapter, settings.get("simulate"))


def _plugin_devices(platform: str) -> list[Any]:
    """The devices of a plugin; none, with a warning, if it does not start and was not asked for by name."""
    from torus.runtime import jaxlib_adapter as adapter

    try:
        return adapter.plugin_devices(platform)
    except Exception as error:
        if settings.get("platform") is not None:
            message = f"TORUS_PLATFORM={platform} cannot be used: its plugin did not start: {error}"
            raise RuntimeError(message) from error
        warnings.warn(
            f"the {platform} plugin did not start, so torus runs on XLA:CPU "
            f"(set TORUS_PLATFORM=cpu to choose that without this warning): {error}",
            RuntimeWarning,
            stacklevel=5,
        )
        return []


def device(device_index: int) -> Any:
    """The PJRT device of ``tpu:device_index``. Raises IndexError when there is none."""
    devices = client().devices
    if not 0 <= device_index < len(devices):
        count = f"this process has {len(devices)} (TORUS_DEVICE_COUNT sets it on the host)"
        raise IndexError(f"there is no device tpu:{device_index}; {count}")
    return devices[device_index]


def platform_name() -> str:
    """``"cpu"``, ``"cuda"`` or ``"tpu"``: of the client if it runs, else what it will be. Starts nothing."""
    return _client.platform if _client is not None else _platform.choose()


def expected_device_count() -> int:
    """How many devices this process has or will have. Starts nothing."""
    return len(_client.devices) if _client is not None else _platform.count(_platform.choose())


def is_started() -> bool:
    """Whether the client of this process runs."""
    return _client is not None


def keep_for_ever() -> None:
    """The client is never destroyed: in a forked child that would wait for threads that the child does not have."""
    import ctypes

    for device in _client.devices if _client is not None else ():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(device.client))


def device_count() -> int:
    """How many devices this process has."""
    return len(client().devices)


def device_name(device_index: int = 0) -> str:
    """``"XLA:CPU host"``, or what the runtime calls the chip, also one that the host stands in for."""
    target = device(device_index)
    if (simulates := client().simulates) is not None:
        return str(simulates.chip.kind)
    return str(client().adapter.device_kind(target))


def simulated_slice() -> str | None:
    """The TPU slice that the host stands in for, such as ``"v6e:2x2"``; None where it is what it is."""
    simulates = client().simulates
    return None if simulates is None else str(simulates.name)
