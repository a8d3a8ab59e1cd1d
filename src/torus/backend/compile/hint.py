"""What `torch.compile` without a backend says: Inductor would import TorchTPU's package, which is not this one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

_MESSAGE = (
    "torch.compile without a backend uses Inductor, which has no programs for this tpu device. "
    'Write torch.compile(f, backend="tpu"), or say torch.compiler.set_default_backend("tpu") once.'
)


class Hint(MetaPathFinder):
    """The last to be asked for a module; it answers for what code that Inductor generated imports, with an error."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Raises ImportError, saying what to write, in code of Inductor that imports ``torch_tpu``."""
        if name == "torch_tpu" and _in_inductor():
            raise ImportError(_MESSAGE, name=name)


def _in_inductor() -> bool:
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("torch._inductor"):
            return True
        frame = frame.f_back
    return False


def install() -> None:
    """Be asked from now on."""
    if not any(isinstance(finder, Hint) for finder in sys.meta_path):
        sys.meta_path.append(Hint())
