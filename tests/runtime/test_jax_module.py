"""Importing JAX in the middle of a program changes nothing of the program's."""

from __future__ import annotations

import subprocess
from collections.abc import Callable


def test_numpy_draws_what_it_would_have_drawn(python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    code = """
import numpy as np
np.random.seed(0)
wanted = np.random.rand(5)
np.random.seed(0)
first = np.random.rand(2)
from torus.runtime import lower
assert 'jax' in sys.modules
print(np.array_equal(np.concatenate([first, np.random.rand(3)]), wanted))
"""
    assert python(code).stdout == "True\n"


def test_draws_of_others_meanwhile_are_kept(python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    code = """
import importlib, types
import numpy as np
from torus.runtime import jax_module
np.random.seed(0)
def load(name):
    np.random.rand(1)
    return importlib.import_module(name)
jax_module.importlib = types.SimpleNamespace(import_module=load)
jax_module.load()
drawn = np.random.rand(1)
np.random.seed(0)
print(drawn[0] not in np.random.rand(1))
"""
    assert python(code).stdout == "True\n"
