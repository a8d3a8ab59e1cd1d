"""What is known of a step on one device of a topology, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Certainty = Literal["analytic", "composed", "exact"]
"""From the StableHLO alone; from the TPU compiler's result for each distinct block; from that for the whole program."""


@dataclass(frozen=True)
class Memory:
    """Bytes of HBM on each device."""

    arguments: int
    outputs: int
    """Without those that take over an argument's memory."""
    temporaries: int
    peak: int

    @property
    def needed(self) -> int:
        """What must be free: the peak, which counts what it has of the other three."""
        return self.peak


@dataclass(frozen=True)
class Collective:
    """One kind of exchange between devices, all of a step together."""

    kind: str
    """``"all-reduce"``, ``"all-gather"``, ``"reduce-scatter"``, ``"all-to-all"``, ``"collective-permute"``"""
    axes: tuple[str, ...]
    count: int
    bytes: int
    """That each device sends, all of them together."""
    seconds: float
    """At the link bandwidth of the chip, without latency: an estimate."""


@dataclass(frozen=True)
class OpCost:
    """Ops of one kind, or of one place in the model."""

    name: str
    count: int
    flops: float
    bytes: float
    seconds: float
    """The longer of its arithmetic and its memory traffic at the chip's peaks: a lower bound."""
    by: Literal["kind", "place"] = "kind"
    """What `name` says. The same op counts in a row of each."""


@dataclass(frozen=True)
class Padding:
    """Work or memory that goes into filling up tiles."""

    what: str
    """The op and its sizes, such as ``"dot_general 4x12x128x64"``."""
    count: int
    waste: float
    """The share of the op's work or bytes that is padding, 0 to 1."""
    change: str
    """What would help, in words: ``"heads of 128 instead of 64: 2.0x of the work is used"``."""


@dataclass(frozen=True)
class Estimate:
    """A step on each device. Figures are per device unless named otherwise; seconds are estimates."""

    certainty: Certainty
    memory: Memory
    flops: float
    bytes: float
    """Read from and written to HBM."""
    roofline_seconds: float
    """Our bound: each op at the chip's peaks, and the collectives beside: the longer of the two."""
    local_seconds: float | None = None
    """Of that the ops alone; None where it is not known."""
    compiler_seconds: float | None = None
    """The TPU compiler's own estimate; None where it was not asked or does not say."""
    collectives: tuple[Collective, ...] = ()
    ops: tuple[OpCost, ...] = ()
    """Those that dominate, first the longest."""
    padding: tuple[Padding, ...] = ()
    programs: int = 1
    compile_seconds: float = 0.0
    notes: tuple[str, ...] = ()
    """What this estimate leaves out or assumes, in sentences."""

    @property
    def link_seconds(self) -> float:
        """Of all collectives."""
        return sum(collective.seconds for collective in self.collectives)

    @property
    def intensity(self) -> float:
        """FLOPs for each byte of HBM traffic."""
        return self.flops / self.bytes if self.bytes else 0.0
