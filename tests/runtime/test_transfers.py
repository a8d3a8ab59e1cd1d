"""Arrays by device index."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import numpy as np
import pytest

from torus import runtime

Python = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize(
    "values",
    [
        np.arange(12.0).reshape(3, 4).T,
        np.arange(12.0)[::-2],
        np.broadcast_to(np.float32(3), (2, 2)),
        np.arange(3, dtype=">i4"),
        np.array(5, dtype=">f8"),
        np.zeros((0, 2)),
    ],
)
def test_any_strides_and_byte_order(values: np.ndarray, copy: bool) -> None:
    back = runtime.to_numpy(runtime.from_numpy(values, 0, copy))
    assert back.shape == values.shape and back.dtype.isnative
    assert (back == values).all()


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(IndexError, match=r"there is no device tpu:99; this process has \d+"):
        runtime.from_numpy(np.ones(1), 99)
    with pytest.raises(IndexError, match="no device tpu:-1"):
        runtime.device_name(-1)


def test_virtual_devices(python: Python) -> None:
    code = """
import numpy as np
import torus.runtime as r
assert (r.device_count(), r.expected_device_count()) == (4, 4)
assert (r.device_name(3), r.platform_name()) == ("XLA:CPU host", "cpu")
x = r.from_numpy(np.arange(4.0), 1)
y = r.copy_to_device(x, 3)
text, outs = r.lower(lambda a: a * 2, [((4,), "float64")])
for i, value in ((1, x), (3, y)):
    program = r.programs.get_or_compile(text, outs, i)
    (result,) = program([value])
    r.block_until_ready([result])
    print(i, r.to_numpy(result).tolist(), r.is_ready(result), result.devices() == value.devices())
print(r.counters.compiles)
"""
    expected = "1 [0.0, 2.0, 4.0, 6.0] True True\n3 [0.0, 2.0, 4.0, 6.0] True True\n1\n"
    assert python(code, TORUS_DEVICE_COUNT="4").stdout == expected
