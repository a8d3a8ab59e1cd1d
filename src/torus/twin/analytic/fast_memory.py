"""Which arrays never reach HBM, because they live in the memory beside a TPU's cores.

The TPU compiler keeps an array there when it fits for as long as it lives. Here those that live shortest come first.
Sizes are those that JAX's Pallas has for each chip (``jax._src.pallas.mosaic.tpu_info``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from torus.twin.analytic.kernels import Kernel

_MIB = 2**20
CAPACITY = {"v5e": 128 * _MIB, "v5p": 64 * _MIB, "v6e": 128 * _MIB, "tpu7x": 64 * _MIB}
SHARE = 0.75
"""Of the capacity for arrays that stay; kernels need room for their own tiles, and arguments are fetched ahead."""


def kept_near(
    kernels: list[Kernel], size: Callable[[int], int], without: Collection[int], family: str
) -> frozenset[int]:
    """The arrays, of those that `kernels` write, for which HBM is not needed; none `without`."""
    room = np.full(len(kernels) + 1, SHARE * CAPACITY.get(family, 0))
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, kernel in enumerate(kernels):
        for i in kernel.writes:
            first[i] = last[i] = position
        for i in kernel.reads:
            last[i] = position
    found = []
    for i in sorted(first.keys() - set(without), key=lambda i: (last[i] - first[i], size(i))):
        span = room[first[i] : last[i] + 1]
        if span.size and span.min() >= size(i):
            span -= size(i)
            found.append(i)
    return frozenset(found)
