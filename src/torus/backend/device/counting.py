"""Counters of what has happened in this process, and ops that run on the CPU."""

from __future__ import annotations

import warnings

from torus import _C, runtime, settings

_MODES = ("warn", "silent", "error")  # in the order of the core


def counters() -> dict[str, int]:
    """What has happened since the start or the last `reset_counters`.

    ``programs`` launched, ``compiles``, ``cache_hits`` (in memory or on disk), ``host_reads`` and ``host_writes``
    (transfers), ``fallbacks`` (ops run on the CPU), ``flushes`` (fused programs; none in strict mode).
    """
    core = _C.counters()
    return {
        "programs": core["programs"],
        "compiles": runtime.counters.compiles,
        "cache_hits": runtime.counters.cache_hits,
        "host_reads": core["host_reads"],
        "host_writes": core["host_writes"],
        "fallbacks": core["fallbacks"],
        "flushes": core.get("flushes", 0),
    }


def reset_counters() -> None:
    """Start all counters, and those of `fallbacks`, again from zero."""
    _C.reset_counters()
    _C.reset_fallbacks()
    runtime.counters.compiles = 0
    runtime.counters.cache_hits = 0


def fallbacks() -> dict[str, int]:
    """How often each op without a lowering has run on the CPU: ``{"aten::median": 3}``."""
    return dict(_C.fallbacks())


def get_cpu_fallback() -> str:
    """``"warn"``, ``"silent"`` or ``"error"``."""
    return _MODES[_C.fallback_mode()]


def set_cpu_fallback(mode: str) -> None:
    """What an op without a lowering does: runs on the CPU with one warning, runs there silently, or raises."""
    if mode not in _MODES:
        raise ValueError(f"cpu_fallback is one of {', '.join(map(repr, _MODES))}, not {mode!r}")
    _C.set_fallback_mode(_MODES.index(mode))


def apply_settings() -> None:
    """Take the initial mode from ``TORUS_CPU_FALLBACK``; a bad value must not break ``import torch``."""
    try:
        set_cpu_fallback(settings.get("cpu_fallback"))
    except ValueError as error:
        warnings.warn(str(error), RuntimeWarning, stacklevel=2)
