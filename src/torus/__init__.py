"""PyTorch on TPUs and every other PJRT device.

With PyTorch installed, importing this package makes the device ``"tpu"`` exist; ``import torch`` alone does the same
through the entry point group ``torch.backends``. Without PyTorch, what needs none of it works (`torus.runtime`,
`torus.bundle`).

``torus.export(model, args, path)`` writes a model as a bundle that runs without PyTorch.
``torus.register_rule("ns::op")`` says what an op computes on the device.
"""

from __future__ import annotations

import importlib.util
import os
import sys

TYPE_CHECKING = False  # importing typing would take most of this package's import time
if TYPE_CHECKING:
    from typing import Any

    from torus.backend.compile.export import export as export
    from torus.backend.rules import register_rule as register_rule

__version__ = "0.1.0"


_PLACES = {"export": "torus.backend.compile.export", "register_rule": "torus.backend.rules"}


def __getattr__(name: str) -> Any:
    import importlib

    if name in _PLACES:
        return globals().setdefault(name, getattr(importlib.import_module(_PLACES[name]), name))
    if name in ("bundle", "runtime"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _autoload() -> None:
    """Make the device exist: PyTorch calls this at the end of ``import torch``."""
    from torus.backend import register

    register()


def _is_command() -> bool:
    """Whether this process is the command `torus`: most of it needs no PyTorch, which takes seconds to import. The TPU
    compiler's process needs none at all.
    """
    first, *_ = [*sys.orig_argv[1:2], ""]
    modules = (["-m", "torus"], ["-m", "torus.twin.compiler.worker"])
    return os.path.basename(first) == "torus" or sys.orig_argv[1:3] in modules


if importlib.util.find_spec("torch") is not None and not _is_command():
    # PyTorch's own autoload may call back into this half-imported module, which is why the function comes first.
    _autoload()
