"""What the runtime does to a process: imports, output, and the user's JAX."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.slow

Python = Callable[..., subprocess.CompletedProcess[str]]


def test_importing_is_light(python: Python) -> None:
    code = """
import sys, time
started = time.process_time()
import torus.runtime
seconds = time.process_time() - started
assert torus.runtime.counters.compiles == 0
assert torus.runtime.platform_name() == "cpu" and torus.runtime.expected_device_count() == 3
print(seconds, [m for m in ("jax", "jaxlib", "numpy") if m in sys.modules])
"""
    runs = [python(code, TORUS_DEVICE_COUNT="3", TORUS_PLATFORM="cpu").stdout.split(" ", 1) for _ in range(3)]
    assert runs[0][1].strip() == "[]"
    assert min(float(seconds) for seconds, _ in runs) < 0.020


def test_every_public_name_works_without_torch(python: Python) -> None:
    code = """
import torus.runtime as r
for name in r.__all__:
    getattr(r, name)
import numpy as np
text, outs = r.lower(lambda x, y: x + y, [((2,), "int64")] * 2)
x = r.from_numpy(np.array([1, 2**62]))
print(r.to_numpy(r.programs.get_or_compile(text, outs)([x, x])[0]).tolist())
r.synchronize(0)
free, total = r.memory_info(0)
assert 0 < free < total
assert sys.modules["torch"] is None
"""
    assert python(code).stdout.strip() == str([2, -(2**63)])


def test_a_process_with_a_warm_cache_does_not_import_jax(python: Python) -> None:
    code = """
import ml_dtypes
import numpy as np
import torus.runtime as r
def aligned(shape, dtype):
    raw = np.zeros(int(np.prod(shape)) * 8 + 64, np.uint8)
    return raw[-raw.ctypes.data % 64 :][: int(np.prod(shape)) * np.dtype(dtype).itemsize].view(dtype).reshape(shape)
values = aligned((4, 4), "float64")
values += np.arange(4)
array = r.from_dlpack(values.__dlpack__())
shared = r.to_numpy(array).ctypes.data == values.ctypes.data
found = r.programs.lookup_signature(b"double")
if found is None:
    text, outs = r.lower(lambda x: (x * 2, x.astype("bfloat16"), x > 1), [((4, 4), "float64")])
    found = r.programs.get_or_compile(text, outs), b""
    r.programs.record_signature(b"double", *found)
results = found[0]([array])
r.block_until_ready(results)
copied = [r.copy_to_device(a, 1) for a in results]
again = [r.from_dlpack(r.to_dlpack(a), 1) for a in copied]
assert all(map(r.is_ready, again))
r.synchronize(0)
print([r.to_numpy(a)[0].tolist() for a in again], shared, r.counters.compiles, "jax" in sys.modules)
"""
    answer = "[[0.0, 2.0, 4.0, 6.0], [0.0, 1.0, 2.0, 3.0], [False, False, True, True]] True"
    assert python(code, TORUS_DEVICE_COUNT="2").stdout == f"{answer} 1 True\n"
    assert python(code, TORUS_DEVICE_COUNT="2").stdout == f"{answer} 0 False\n"


def test_a_cached_program_that_calls_a_kernel_by_name(python: Python) -> None:
    code = """
import numpy as np
import torus.runtime as r
x = r.from_numpy(np.array([[4.0, 2.0], [2.0, 3.0]]))
found = r.programs.lookup_signature(b"cholesky")
if found is None:
    from jax.numpy.linalg import cholesky
    found = r.programs.get_or_compile(*r.lower(lambda x: cholesky(x), [((2, 2), "float64")])), b""
    r.programs.record_signature(b"cholesky", *found)
print(r.to_numpy(found[0]([x])[0])[0].tolist(), r.counters.compiles)
"""
    assert python(code).stdout == "[2.0, 0.0] 1\n"
    assert python(code).stdout == "[2.0, 0.0] 0\n"


def test_nothing_is_printed_and_jax_is_untouched(python: Python) -> None:
    code = """
import numpy as np
import torus.runtime as r
import jax
from jax._src import xla_bridge
before = dict(jax.config.values)
x = r.from_numpy(np.ones((4, 4)))
def fn(x):
    return x + 1, jax.lax.sort(x), jax.random.bits(jax.random.key(0), (3,))
text, outs = r.lower(fn, [((4, 4), "float64")])
program = r.programs.get_or_compile(text, outs)
results = program([x])
r.block_until_ready(results)
assert [str(a.dtype) for a in results] == ["float64", "float64", "uint64"]
assert not xla_bridge.backends_are_initialized()
assert dict(jax.config.values) == before
assert jax.numpy.ones(2, "float64").dtype == "float32"
assert jax.device_count() == 1 and r.device_count() == 2
"""
    for _ in range(2):  # compiled, then loaded from disk
        done = python(code, TORUS_DEVICE_COUNT="2", JAX_PLATFORMS="cpu", PYTHONWARNINGS="ignore")
        assert (done.stdout, done.stderr) == ("", "")


def test_the_users_jax_configuration_does_not_change_programs(python: Python) -> None:
    code = """
import jax, torus.runtime as r
def f(x, y):
    return jax.numpy.matmul(x, x) + y
def text():
    return r.lower(f, [((2, 2), "bfloat16"), ((2,), "float32")])[0]
plain = text()
jax.config.update("jax_default_matmul_precision", "highest")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_disable_jit", True)
jax.config.update("jax_debug_nans", True)
assert text() == plain
print("same")
"""
    assert python(code).stdout.strip() == "same"


def test_settings_can_be_printed(python: Python) -> None:
    code = "import runpy; runpy.run_module('torus.settings', run_name='__main__')"
    assert "| `platform` | `TORUS_PLATFORM` |" in python(code).stdout
