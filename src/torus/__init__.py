"""PyTorch on TPUs and every other PJRT device.

With PyTorch installed, importing this package makes the device ``"tpu"`` exist; ``import torch`` alone does the same
through the entry point group ``torch.backends``. Without PyTorch, what needs none of it works (`torus.runtime`).
"""

from __future__ import annotations

import importlib.util

__version__ = "0.1.0"


def _autoload() -> None:
    """Make the device exist: PyTorch calls this at the end of ``import torch``."""
    from torus.backend import register

    register()


if importlib.util.find_spec("torch") is not None:
    # PyTorch's own autoload may call back into this half-imported module, which is why the function comes first.
    _autoload()
