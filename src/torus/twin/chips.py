"""The facts of each TPU chip, in one table, with their sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Chip:
    """One chip. Figures with *device* are for one of its `devices`: what XLA runs a program on."""

    family: str
    kind: str
    """What the runtime calls a device: ``"TPU v6 lite"``."""
    devices: int
    hbm_bytes: int
    """Of a device."""
    hbm_bandwidth: float
    """Bytes a second of a device."""
    flops: Mapping[str, float]
    """Peak of a device a second, by dtype of the operands: ``"bfloat16"``, ``"int8"``, ``"float8_e4m3fn"``."""
    link_bandwidth: float
    """Bytes a second of one link between chips, in one direction."""
    links: int
    """Between a chip and its neighbours."""
    matrix_unit: int
    """Rows and columns of its matrix unit: 128 or 256."""
    source: str


CHIPS: dict[str, Chip] = {}
