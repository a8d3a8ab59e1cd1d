"""Portable models: StableHLO programs, weights and a manifest in a folder, run without PyTorch and without the model's
code.

::

    from torus.bundle import Bundle

    bundle = Bundle.load("model")
    print(bundle.describe())
    logits = bundle.run(x)

`torus.export` makes a bundle of a PyTorch module, and `write` of any StableHLO. docs/bundles.md describes the format.
Importing this package loads neither NumPy nor JAX.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # importing typing would take most of this package's import time
if TYPE_CHECKING:
    from typing import Any

    from torus.bundle.bundle import Bundle as Bundle
    from torus.bundle.errors import BundleError as BundleError
    from torus.bundle.errors import DamagedBundleError as DamagedBundleError
    from torus.bundle.errors import InputError as InputError
    from torus.bundle.errors import NewerFormatError as NewerFormatError
    from torus.bundle.manifest import Dim as Dim
    from torus.bundle.manifest import Manifest as Manifest
    from torus.bundle.manifest import Tensor as Tensor
    from torus.bundle.writer import NewProgram as NewProgram
    from torus.bundle.writer import NewWeight as NewWeight
    from torus.bundle.writer import write as write

_WHERE = {
    "Bundle": "bundle",
    "BundleError": "errors",
    "DamagedBundleError": "errors",
    "InputError": "errors",
    "NewerFormatError": "errors",
    "Dim": "manifest",
    "Manifest": "manifest",
    "Tensor": "manifest",
    "NewProgram": "writer",
    "NewWeight": "writer",
    "write": "writer",
}

__all__ = [*_WHERE]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    return value
