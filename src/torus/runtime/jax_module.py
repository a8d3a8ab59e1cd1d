"""Imports JAX, in the middle of somebody's program."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import numpy as np

_DRAWS = 5
"""How many numbers JAX's import takes from NumPy's global stream: default arguments of its cluster detection."""


def is_loaded() -> bool:
    """Whether JAX has been imported to its end. Another thread may be in the middle of it, and jaxlib, asked for an
    array by then, would look for JAX's types in vain, and never again in this process.
    """
    spec = getattr(sys.modules.get("jax"), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


def load(name: str = "jax") -> ModuleType:
    """A module of JAX. Its first import leaves NumPy's global random stream, which is the user's, as it was; unless
    another thread drew from it meanwhile.
    """
    if "jax" in sys.modules:
        return importlib.import_module(name)
    before = np.random.get_state(legacy=False)  # noqa: NPY002 (the global stream it is)
    module = importlib.import_module(name)
    moved = np.random.RandomState()
    moved.set_state(before)
    moved.random_sample(_DRAWS)
    if _place(moved.get_state(legacy=False)) == _place(np.random.get_state(legacy=False)):  # noqa: NPY002
        np.random.set_state(before)  # noqa: NPY002
    return module


def _place(state: object) -> tuple[bytes, int]:
    assert isinstance(state, dict)
    return state["state"]["key"].tobytes(), state["state"]["pos"]
