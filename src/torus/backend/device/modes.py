"""When ops run: at once (strict), at once and waited for (debug), or recorded and fused."""

from __future__ import annotations

import enum
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from torus import _C, settings


class EagerMode(enum.Enum):
    """When an op runs."""

    DEFER_NEVER = "defer_never"
    """At once, one program for each op."""
    DEFER_NEVER_AND_LAUNCH_BLOCKING = "defer_never_and_launch_blocking"
    """At once, and Python goes on when the result is there: an error shows at the op that made it."""
    DEFER_AND_FUSE = "defer_and_fuse"
    """Later: ops are recorded and run as one fused program when a value is needed."""


_mode = EagerMode.DEFER_NEVER


def get_mode() -> EagerMode:
    """The mode of this process."""
    return _mode


def set_mode(mode: EagerMode) -> None:
    """Choose the mode of this process. Raises NotImplementedError for a mode that this version does not have."""
    global _mode
    if not isinstance(mode, EagerMode):
        raise TypeError(f"expected a torch.tpu.EagerMode, got {mode!r}")
    _check_supported(mode)
    _C.set_launch_blocking(mode is EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING)
    _mode = mode


def _check_supported(mode: EagerMode) -> None:
    if mode is EagerMode.DEFER_AND_FUSE:
        raise NotImplementedError(
            "EagerMode.DEFER_AND_FUSE comes with a later version of torus; "
            "EagerMode.DEFER_NEVER gives the same results, op by op"
        )


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
    for name, mode in asked.items():
        try:
            if settings.get(name):
                set_mode(mode)
        except (NotImplementedError, ValueError) as error:
            warnings.warn(f"the setting {name} has no effect: {error}", RuntimeWarning, stacklevel=2)
