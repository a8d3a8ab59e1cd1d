"""How exactly float32 matrix products and convolutions are computed."""

from __future__ import annotations

import enum
from types import TracebackType
from typing import Any

from torus import _C


class Precision(enum.IntEnum):
    """DEFAULT and HIGH: one or three bfloat16 passes, on a TPU's matrix unit and, with its values, everywhere else.
    HIGHEST is the default: six passes on a TPU, float32 elsewhere.
    """

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2


_FOLLOW_TORCH = -1
_TO_CORE = {int(Precision.DEFAULT): 3, int(Precision.HIGH): 4}
"""The core's numbers for what is asked for here; 0 and 1 are what PyTorch's own setting allows."""
_ASKED = {number: value for value, number in _TO_CORE.items()}
_override = _FOLLOW_TORCH
_excess = True


def as_precision(value: Precision | str) -> Precision:
    """A member by its name in any case. Raises ValueError for another word."""
    if isinstance(value, Precision):
        return value
    if str(value).upper() in Precision.__members__:
        return Precision[str(value).upper()]
    raise ValueError(f"expected a torch.tpu.Precision or one of 'default', 'high', 'highest', got {value!r}")


class precision:
    """Choose the precision of float32 matrix products and convolutions.

    ``torch.tpu.precision(p)`` sets it from here on; ``with torch.tpu.precision(p):`` for a block. It holds for the
    whole process and outranks `torch.set_float32_matmul_precision`, which counts where this was never called, and
    which only allows: a platform without a faster unit ignores that one, and gives the values of a TPU for this one.

    `value` is a `Precision` or its name in any case.
    """

    def __init__(self, value: Precision | str) -> None:
        self._value = as_precision(value)
        self._previous = _override
        _set(self._value)

    def __enter__(self) -> Precision:
        _set(self._value)
        return self._value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _set(self._previous)


def get_precision() -> Precision:
    """The precision in force now."""
    return Precision(_ASKED.get(_C.precision(), _C.precision()))


def _set(value: int) -> None:
    global _override
    _override = value
    _C.set_precision(_TO_CORE.get(int(value), int(value)))


def get_allow_excess_precision() -> bool:
    """Whether the compiler may keep more bits than the dtypes say between the steps of one program."""
    return _excess


def set_allow_excess_precision(allow: bool) -> None:
    """False makes it round to the dtype after each step; programs made until now are left aside."""
    global _excess
    if not isinstance(allow, bool):
        raise TypeError(f"allow_excess_precision is True or False, not {allow!r}")
    if allow != _excess:
        _excess = allow
        _C.clear_programs()


def compiler_options() -> dict[str, Any]:
    """The XLA options that these settings mean; none for the defaults."""
    return {} if _excess else {"xla_allow_excess_precision": False}
