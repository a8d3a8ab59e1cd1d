"""A memory budget, and how many copies of the examples run at once within it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from torus.backend import device as tpu
from torus.explain.function import Function
from torus.explain.live import peak_bytes
from torus.explain.points import Points, rows

MOST = 1024
"""Copies at once, however large the budget."""

_UNITS = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("KMGT", 1)
    for suffix, base in (("B", 1000), ("iB", 1024))
}


def in_bytes(budget: int | str) -> int:
    """Bytes of ``"2GiB"``, ``"500 MB"`` or an int. Raises ValueError for anything else."""
    found = re.fullmatch(r"\s*([0-9.]+)\s*([a-zA-Z]*)\s*", str(budget))
    units = {name.lower(): size for name, size in _UNITS.items()}
    if not found or found[2].lower() not in units or found[1].count(".") > 1:
        raise ValueError(f"a budget is a number of bytes, or text such as '2GiB' and '500MB', and not {budget!r}")
    return int(float(found[1]) * units[found[2].lower()])


def chunk_within(
    budget: int, function: Function, points: Points, *, gradients: bool, devices: int = 1, held: int = 0
) -> int:
    """The most copies of the examples that run at once within a budget, by what `torus.explain.live` counts.

    What is alive on the device counts, the model included; on the CPU only what the run adds is known. Of several
    devices each takes so many, and the first has the method's own tensors, `held` copies. Raises ValueError, before
    anything runs, where one copy does not fit; it says what would.
    """
    used = tpu.memory_allocated(points[0].device) if points[0].device.type == "tpu" else 0
    ask: Callable[[Points], Any] = function.grad if gradients else function.value

    def needed(copies: int) -> int:
        return used + _held(points, copies * devices, held) + _estimated(ask, points, copies)

    one = needed(1)
    if one > budget:
        raise ValueError(
            f"the budget of {as_text(budget)} is too small: {as_text(used)} are in use, the model and its inputs "
            f"included, and one copy of {rows(points)} examples needs {as_text(one - used)}. "
            f"A budget of {as_text(one)} would do; fewer examples at once need less"
        )
    each = max(1, needed(2) - one)
    copies = min(MOST, 1 + (budget - one) // each)
    while copies > 1 and needed(copies) > budget:
        copies = copies * 7 // 8
    return copies


def exceeded(budget: int | None, peak: int | None) -> str:
    """A verdict for a run that took more than its budget after all; empty where it did not."""
    if budget is None or peak is None or peak <= budget:
        return ""
    return (
        f"the run took {as_text(peak)}, more than the budget of {as_text(budget)}: a method's own points were too many"
    )


def as_text(size: int) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024  # type: ignore[assignment]
    return f"{size:.4g} GiB"


def _held(points: Points, copies: int, held: int) -> int:
    """What there is besides: the copies that run twice more (masks, gradients) and six examples' sums and errors."""
    return sum(point.nbytes for point in points) * (2 * copies + 6 + held)


def _estimated(ask: Callable[[Points], Any], points: Points, copies: int) -> int:
    try:
        return peak_bytes(ask, points, copies * rows(points))
    except (RuntimeError, NotImplementedError, TypeError) as error:
        raise ValueError(
            "the memory of a call of the model cannot be estimated, since it does not run on tensors without data; "
            f"give `chunk` in the place of `budget`: {error}"
        ) from error
