"""JAX modules that load at first use.

Rules name ``lax`` and ``jnp`` at module level, and the registry must be readable at import without paying for JAX.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any


class _LazyModule(ModuleType):
    """A module whose first attribute access imports the real one."""

    def __getattr__(self, name: str) -> Any:
        from torus.runtime.jax_module import load

        return getattr(load(self.__name__), name)


if TYPE_CHECKING:
    import jax
    import jax.numpy as jnp
    import jax.scipy.special as jsp
    from jax import lax
else:
    jax = _LazyModule("jax")
    jnp = _LazyModule("jax.numpy")
    jsp = _LazyModule("jax.scipy.special")
    lax = _LazyModule("jax.lax")

__all__ = ["jax", "jnp", "jsp", "lax"]
