"""The facts of each TPU chip, in one table, with their sources.

Each entry names the vendor's page that has its peaks, HBM and bandwidths. That between chips is given there for all
links of a chip and both directions together. What a program may use of the HBM is what the TPU
compiler (libtpu 0.0.52) says is available when a program needs more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_GIB = 2**30
_PAGES = "https://docs.cloud.google.com/tpu/docs/"


@dataclass(frozen=True)
class Chip:
    """One chip. Figures with *device* are for one of its `devices`: what XLA runs a program on."""

    family: str
    kind: str
    """What the runtime calls a device: ``"TPU v6 lite"``."""
    devices: int
    hbm_bytes: int
    """Of a device, that a program may use: somewhat less than its `hbm_documented`."""
    hbm_documented: int
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


def _chip(
    family: str,
    kind: str,
    *,
    devices: int = 1,
    hbm: int,
    usable: float,
    bandwidth: float,
    flops: Mapping[str, float],
    interconnect: float,
    links: int,
    matrix_unit: int,
) -> Chip:
    """From a chip's figures as its page gives them; *usable* GiB of a device, *interconnect* all links both ways."""
    return Chip(
        family,
        kind,
        devices,
        hbm_bytes=int(usable * _GIB),
        hbm_documented=hbm * _GIB // devices,
        hbm_bandwidth=bandwidth / devices,
        flops={dtype: peak / devices for dtype, peak in flops.items()},
        link_bandwidth=interconnect / 2 / links,
        links=links,
        matrix_unit=matrix_unit,
        source=_PAGES + family,
    )


CHIPS: dict[str, Chip] = {
    chip.family: chip
    for chip in (
        _chip(
            "v5e",
            "TPU v5 lite",
            hbm=16,
            usable=15.75,
            bandwidth=819e9,
            flops={"bfloat16": 197e12, "int8": 393e12},
            interconnect=400e9,
            links=4,
            matrix_unit=128,
        ),
        _chip(
            "v5p",
            "TPU v5",
            hbm=95,
            usable=95.73,
            bandwidth=2765e9,
            flops={"bfloat16": 459e12, "float8_e4m3fn": 459e12, "int8": 918e12},
            interconnect=1200e9,
            links=6,
            matrix_unit=128,
        ),
        _chip(
            "v6e",
            "TPU v6 lite",
            hbm=32,
            usable=31.24,
            bandwidth=1638e9,
            flops={"bfloat16": 918e12, "float8_e4m3fn": 918e12, "int8": 1836e12},
            interconnect=800e9,
            links=4,
            matrix_unit=256,
        ),
        # Its two cores have their own halves of the memory: two devices.
        _chip(
            "tpu7x",
            "TPU7x",
            devices=2,
            hbm=192,
            usable=94.74,
            bandwidth=7380e9,
            flops={"bfloat16": 2307e12, "float8_e4m3fn": 4614e12},
            interconnect=1200e9,
            links=6,
            matrix_unit=256,
        ),
    )
}
