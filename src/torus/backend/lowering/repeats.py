"""Arrays that repeat others along some axes, as expanded tensors do, remembered while a program is traced.

XLA:CPU makes every copy that a product reads. ``linear`` of one position of each text is a batch of products with one
weight, repeated: 16 copies of a vocabulary of 50,000, 896 wide, are 2.9 GB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torus.backend.lowering.apply import current
from torus.backend.lowering.lazy import jnp


def repeat(once: Any, sizes: Sequence[int]) -> Any:
    """`once` broadcast to `sizes`; of as many axes, it has size 1 where it is repeated."""
    return _remember(jnp.broadcast_to(once, sizes), once)


def transpose(array: Any, order: Sequence[int]) -> Any:
    """``jnp.transpose``; what repeats still does."""
    moved, once = jnp.transpose(array, order), _once(array)
    return moved if once is None else _remember(moved, jnp.transpose(once, order))


def first(array: Any) -> Any:
    """The one matrix (k, m) that a batch (n, k, m) repeats; None where it does not, or repeats more than that."""
    once = _once(array)
    return None if once is None or once.shape != (1, *array.shape[1:]) else once[0]


def _remember(array: Any, once: Any) -> Any:
    if array.shape != once.shape:
        current().repeats[id(array)] = (array, once)  # the array stays, and so does the meaning of its id
    return array


def _once(array: Any) -> Any:
    _, once = current().repeats.get(id(array), (None, None))
    return once
