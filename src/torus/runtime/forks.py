"""What a forked child makes anew: a lock that another thread of the parent held stays held for ever in the child, where
that thread does not exist.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable

_renewals: list[weakref.WeakMethod[Callable[[], None]]] = []


def now_and_in_children(renew: Callable[[], None]) -> None:
    """Call a bound method now, and again in every forked child, for as long as its object lives."""
    renew()
    _renewals[:] = [kept for kept in _renewals if kept() is not None]
    _renewals.append(weakref.WeakMethod(renew))


def _after_fork_in_child() -> None:
    for reference in _renewals:
        renew = reference()
        if renew is not None:
            renew()


os.register_at_fork(after_in_child=_after_fork_in_child)
