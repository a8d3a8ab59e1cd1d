"""``torch.tpu``: what users of the device see. Ordinary PyTorch code needs none of it."""

from __future__ import annotations

import atexit
import sys
from types import ModuleType
from typing import Any, NoReturn

import torch

from torus.backend.compile import compiler, hint
from torus.backend.device import amp, cache, counting, ending, forking, memory, modes, numerics, random, streams
from torus.backend.device.amp import get_amp_supported_dtype, is_bf16_supported
from torus.backend.device.counting import counters, fallbacks, reset_counters
from torus.backend.device.devices import (
    DeviceProperties,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_initialized,
    set_device,
    synchronize,
)
from torus.backend.device.explain import explain
from torus.backend.device.memory import (
    LiveTensors,
    empty_cache,
    live_tensors,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_limit,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
    set_memory_limit,
)
from torus.backend.device.modes import EagerMode, set_eager_mode
from torus.backend.device.numerics import Precision, get_precision, precision
from torus.backend.device.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torus.backend.device.show import show
from torus.backend.device.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)
from torus.backend.rules import register_rule

SUBMODULES = (amp, cache, compiler, memory, random, streams)
"""Importable as ``torch.tpu.<name>`` too."""

_initialized = True  # the generators are: checkpoint asks before it keeps their state
_is_in_bad_fork = forking.in_bad_fork
_lazy_init = init


def topology_aware_mesh(*args: Any, **kwargs: Any) -> NoReturn:
    """Comes with distributed training, in a later version."""
    raise NotImplementedError(
        "torch.tpu.topology_aware_mesh comes with distributed training, in a later version of torus"
    )


class _DeviceModule(ModuleType):
    """The module with the settings that are read and written as attributes."""

    @property
    def allow_excess_precision(self) -> bool:
        """Whether the compiler may keep more bits than the dtypes say within the program of one op; True at first.

        Fused programs round after each op in any case.
        """
        return numerics.get_allow_excess_precision()

    @allow_excess_precision.setter
    def allow_excess_precision(self, allow: bool) -> None:
        numerics.set_allow_excess_precision(allow)

    @property
    def cpu_fallback(self) -> str:
        """What an op without a lowering does: ``"warn"``, ``"silent"`` or ``"error"``. See ``TORUS_CPU_FALLBACK``."""
        return counting.get_cpu_fallback()

    @cpu_fallback.setter
    def cpu_fallback(self, mode: str) -> None:
        counting.set_cpu_fallback(mode)

    @property
    def default_generators(self) -> tuple[torch.Generator, ...]:
        """The default generator of each device."""
        return random.default_generators()

    @property
    def fusing(self) -> str:
        """When fused programs are compiled: ``"background"``, ``"foreground"`` or ``"never"``. See ``TORUS_FUSING``."""
        return modes.get_fusing()

    @fusing.setter
    def fusing(self, how: str) -> None:
        modes.set_fusing(how)

    @property
    def eager_mode(self) -> EagerMode:
        """When ops run, for the whole process."""
        return modes.get_mode()

    @eager_mode.setter
    def eager_mode(self, mode: EagerMode) -> None:
        modes.set_mode(mode)


sys.modules[__name__].__class__ = _DeviceModule
counting.apply_settings()
hint.install()
modes.apply_settings()
atexit.register(ending.wait_for_engine)

__all__ = [
    "DeviceProperties",
    "EagerMode",
    "Event",
    "LiveTensors",
    "Precision",
    "Stream",
    "StreamContext",
    "amp",
    "cache",
    "can_device_access_peer",
    "compiler",
    "counters",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "explain",
    "fallbacks",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_precision",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "live_tensors",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_limit",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "precision",
    "register_rule",
    "reset_accumulated_memory_stats",
    "reset_counters",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_eager_mode",
    "set_memory_limit",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "show",
    "stream",
    "synchronize",
    "topology_aware_mesh",
]
