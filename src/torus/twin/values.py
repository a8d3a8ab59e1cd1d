"""What goes into a graph and comes out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from torus.twin.step import Kind


@dataclass(frozen=True)
class Value:
    """An argument or a result of a graph."""

    name: str
    kind: Kind | Literal["gradient"]
    shape: tuple[int, ...]
    dtype: torch.dtype
    of: str = ""
    """The parameter whose state or gradient it is."""
    replaces: int | None = None
    """Of a result: the argument whose new value it is."""
