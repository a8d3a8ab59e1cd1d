"""Names of TPU topologies such as ``"v6e:2x2"``, and meshes over their devices."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from torus.twin.chips import CHIPS, Chip


@dataclass(frozen=True)
class Topology:
    """Chips of one family in a grid."""

    chip: Chip
    grid: tuple[int, ...]

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
