"""Lines of tests, as the reports name them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def line_of(function: Callable[..., Any], text: str) -> str:
    """``file:line in function`` of the line of `function` that contains `text`."""
    lines, first = inspect.getsourcelines(function)
    number = next(first + i for i, line in enumerate(lines) if text in line and "line_of" not in line)
    return f"{inspect.getsourcefile(function)}:{number} in {function.__qualname__}"
