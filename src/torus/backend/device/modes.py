"""When ops run: at once (strict), at once and waited for (debug), or recorded and fused."""

from __future__ import annotations

import atexit
import enum
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from torus import _C, settings
from torus.backend.device import forking


class EagerMode(enum.Enum):
    """When an op runs."""

    DEFER_NEVER = "defer_never"
    """At once, one program for each op."""
    DEFER_NEVER_AND_LAUNCH_BLOCKING = "defer_never_and_launch_blocking"
    """At once, and Python goes on when the result is there: an error shows at the op that made it."""
    DEFER_AND_FUSE = "defer_and_fuse"
    """Later: ops are recorded and run as one fused program when a value is needed."""


_mode = EagerMode.DEFER_NEVER
_at_exit = False


def get_mode() -> EagerMode:
    """The mode of this process."""
    return _mode


def set_mode(mode: EagerMode) -> None:
    """Choose the mode of this process. What was recorded before stays recorded until a value of it is needed."""
    global _mode, _at_exit
    if not isinstance(mode, EagerMode):
        raise TypeError(f"expected a torch.tpu.EagerMode, got {mode!r}")
    if mode is EagerMode.DEFER_AND_FUSE and not _at_exit:
        atexit.register(_finish)
        _at_exit = True
    _C.set_launch_blocking(mode is EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING)
    _C.set_recording(mode is EagerMode.DEFER_AND_FUSE)
    _mode = mode


def _finish() -> None:
    """Run what is still recorded, so that a failure in it does not pass in silence."""
    if forking.in_bad_fork():
        return
    _C.set_fuse_mode(0)
    _C.flush(True)
    _C.raise_unreported_failure()


_FUSING = ("never", "background", "foreground")  # in the order of the core


def set_fusing(how: str) -> None:
    """When fused programs are compiled: ``"background"`` (ops run one by one until then), ``"foreground"`` (at once,
    which is deterministic) or ``"never"``.
    """
    if how not in _FUSING:
        raise ValueError(f"fusing is one of {', '.join(map(repr, _FUSING))}, not {how!r}")
    _C.set_fuse_mode(_FUSING.index(how))


def get_fusing() -> str:
    """``"never"``, ``"background"`` or ``"foreground"``."""
    return _FUSING[_C.fuse_mode()]


@contextmanager
def set_eager_mode(mode: EagerMode) -> Iterator[None]:
    """``with torch.tpu.set_eager_mode(m):`` chooses the mode inside the block."""
    previous = get_mode()
    set_mode(mode)
    try:
        yield
    finally:
        set_mode(previous)


def apply_settings() -> None:
    """Start in the mode that the environment asks for; one that is not there yet must not break ``import torch``."""
    asked = {"defer_and_fuse": EagerMode.DEFER_AND_FUSE, "launch_blocking": EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING}
    try:
        set_fusing(settings.get("fusing"))
    except ValueError as error:
        warnings.warn(str(error), RuntimeWarning, stacklevel=2)
    for name, mode in asked.items():
        try:
            if settings.get(name):
                set_mode(mode)
        except ValueError as error:
            warnings.warn(f"the setting {name} has no effect: {error}", RuntimeWarning, stacklevel=2)
