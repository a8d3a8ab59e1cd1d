"""Lowerings from ATen to StableHLO, one rule for each op, grouped by family. `load_all` fills the registry."""

from __future__ import annotations

import importlib
import pkgutil

from torus.backend.lowering import registry as registry


def load_all() -> None:
    """Import every module of this package; rules register themselves. Loads no JAX."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
