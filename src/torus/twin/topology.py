"""Names of TPU topologies such as ``"v6e:2x2"``, and meshes over their devices."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from torus.twin.chips import CHIPS, Chip

_FLAT = ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))
_CUBES = (
    *((1, 1, 1), (2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4), (4, 4, 4), (4, 4, 8), (4, 8, 8)),
    *((8, 8, 8), (8, 8, 16), (8, 16, 16), (16, 16, 16)),
)

_CORES = {"v5p": 2, "tpu7x": 2}
"""TensorCores of a chip, where it has several: v5p's are one device, tpu7x's are two."""

GRIDS: dict[str, tuple[tuple[int, ...], ...]] = {"v5e": _FLAT, "v6e": _FLAT, "v5p": _CUBES, "tpu7x": _CUBES}
"""The slices that exist, by family, smallest first.

The TPU compiler takes more (any multiple of a host's chips, such as v6e:2x6); these are those of its grids that the
vendor's pages offer.
"""


@dataclass(frozen=True)
class Topology:
    """Chips of one family in a grid."""

    chip: Chip
    grid: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Topology:
        """From its name, ``"v6e:2x2"`` or ``"v6e-4"``; a ValueError lists what exists."""
        if match := re.fullmatch(r"(\w+)-(\d+)", text.strip().lower()):
            return cls._of_cores(match[1].replace("litepod", "e"), int(match[2]), text)
        family, _, grid = text.strip().lower().partition(":")
        if family not in CHIPS:
            raise ValueError(
                f"there is no TPU family {family!r} in {text!r}; there are {', '.join(CHIPS)}, as in 'v6e:2x2'"
            )
        sizes = tuple(int(size) for size in grid.split("x")) if re.fullmatch(r"\d+(x\d+)*", grid) else ()
        if sizes not in GRIDS[family]:
            has = ", ".join("x".join(map(str, each)) for each in GRIDS[family])
            raise ValueError(f"{text} does not exist; {family} has {has}")
        return cls(CHIPS[family], sizes)

    @classmethod
    def _of_cores(cls, family: str, cores: int, text: str) -> Topology:
        """As the vendor names accelerator types: by how many TensorCores they have."""
        each = _CORES.get(family, 1)
        grids = {prod(grid) * each: grid for grid in GRIDS.get(family, ())}
        if cores in grids:
            return cls(CHIPS[family], grids[cores])
        names = [family] if family in GRIDS else GRIDS
        has = (f"{name}-{prod(grid) * _CORES.get(name, 1)}" for name in names for grid in GRIDS[name])
        raise ValueError(f"{text} does not exist; there are {', '.join(has)}")

    @classmethod
    def all(cls, family: str) -> tuple[Topology, ...]:
        """Every topology of *family*, smallest first."""
        return tuple(cls(CHIPS[family], grid) for grid in GRIDS[family])

    @property
    def name(self) -> str:
        """As it was written: ``"v6e:2x2"``."""
        return f"{self.chip.family}:{'x'.join(map(str, self.grid))}"

    @property
    def chips(self) -> int:
        return prod(self.grid)

    @property
    def devices(self) -> int:
        """What PyTorch and XLA see: a chip with two cores that do not share memory is two devices."""
        return self.chips * self.chip.devices


@dataclass(frozen=True)
class Mesh:
    """Named axes over all devices of a topology, the slowest first."""

    axes: dict[str, int]

    @classmethod
    def parse(cls, text: str, topology: Topology) -> Mesh:
        """From ``"data=4,model=2"``; one size may be ``-1``: what is left. Empty for one device.

        Raises ValueError where the text is something else, or the sizes do not make up the topology's devices.
        """
        axes: dict[str, int] = {}
        for part in filter(None, text.replace(" ", "").split(",")):
            match = re.fullmatch(r"([A-Za-z_]\w*)=(-1|[1-9]\d*)", part)
            if match is None or match[1] in axes:
                raise ValueError(
                    f"a mesh is written 'data=4,model=2', with each axis once; {part!r} in {text!r} is not"
                )
            axes[match[1]] = int(match[2])
        return cls(_filled(axes, topology))


def _filled(axes: dict[str, int], topology: Topology) -> dict[str, int]:
    """*axes* with the size that is left for -1, once they are known to fill the topology."""
    rest, over = divmod(topology.devices, prod(size for size in axes.values() if size != -1))
    unknown = [axis for axis, size in axes.items() if size == -1]
    if over or len(unknown) > 1 or (not unknown and rest != 1):
        sizes = ",".join(f"{axis}={size}" for axis, size in axes.items()) or "no axes"
        raise ValueError(f"{topology.name} has {topology.devices} devices; a mesh of {sizes} does not fill them")
    return {axis: rest if size == -1 else size for axis, size in axes.items()}
