"""Options that are passed on to a Python function, as a command line writes them."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from torus.cli import CommandError


def parse(pairs: Iterable[str]) -> dict[str, Any]:
    """``name=value`` with Python's numbers, tuples and words; any other value is a text.

    Raises CommandError for what has no ``=``.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise CommandError(f"--option {pair}: it has to be NAME=VALUE")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found
