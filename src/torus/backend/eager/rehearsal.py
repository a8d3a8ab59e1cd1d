"""The first run of a program, made for nothing before anybody waits for it.

XLA:CPU builds the kernels of matrix products when a program first runs, 1 to 3 ms for each product, so that the first
run of a language model takes ten times as long as the second.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from torus import runtime
from torus.runtime.programs import Aval, Program

_MOST_BYTES = 1 << 28
"""A rehearsal takes no more memory than this."""


def describe(stablehlo: str, arguments: Sequence[Aval]) -> bytes:
    """What `run` has to know of a program: its arguments. A loop may never end on zeros: then there is no rehearsal."""
    return b"" if "stablehlo.while" in stablehlo else json.dumps(list(arguments)).encode()


def run(program: Program, about: bytes, extra_bytes: int) -> None:
    """Run `program` on zeros, where first runs are slow and memory allows."""
    if not about or runtime.platform_name() != "cpu":
        return

    from torus.runtime import jaxlib_adapter as adapter

    avals = [(tuple(shape), adapter.dtype(name)) for shape, name in json.loads(about)]
    if extra_bytes + sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in avals) > _MOST_BYTES:
        return
    arguments = [runtime.from_numpy(np.zeros(shape, dtype), program.device_index) for shape, dtype in avals]
    runtime.block_until_ready(program(arguments))
