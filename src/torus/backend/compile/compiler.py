"""`torch.tpu.compiler`: options of the XLA compiler."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_local = threading.local()


@contextmanager
def custom_compiler_options(options: dict[str, Any]) -> Iterator[None]:
    """Compile with these XLA options inside the block, on this thread."""
    previous = current_options()
    _local.options = previous | options
    try:
        yield
    finally:
        _local.options = previous


def current_options() -> dict[str, Any]:
    """The options of the innermost blocks."""
    return dict(getattr(_local, "options", {}))
