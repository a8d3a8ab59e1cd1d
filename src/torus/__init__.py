"""PyTorch on TPUs and every other PJRT device.

With PyTorch installed, importing this package makes the device ``"tpu"`` exist; ``import torch`` alone does the same
through the entry point group ``torch.backends``. Without PyTorch, what needs none of it works (`torus.runtime`,
`torus.bundle`).

``torus.export(model, args, path)`` writes a model as a bundle that runs without PyTorch.
"""

from __future__ import annotations

import importlib.util
import os
import sys

TYPE_CHECKING = False  # importing typing would take most of this package's import time
if TYPE_CHECKING:
    from typing import Any

    from torus.backend.compile.export import export as export

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    import importlib

    if name == "export":
        value = importlib.import_module("torus.backend.compile.export").export
        return globals().setdefault(name, value)
    if name in ("bundle", "runtime"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _autoload() -> None:
    """Make the device exist: PyTorch calls this at the end of ``import torch``."""
    from torus.backend import register

    register()


def _is_command() -> bool:
    """Whether this process is the command `torus`: most of it needs no PyTorch, which takes seconds to import."""
    first, *_ = [*sys.orig_argv[1:2], ""]
    return os.path.basename(first) == "torus" or sys.orig_argv[1:3] == ["-m", "torus"]


if importlib.util.find_spec("torch") is not None and not _is_command():
    # PyTorch's own autoload may call back into this half-imported module, which is why the function comes first.
    _autoload()
