"""What the TPU compiler made of a program."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

from torus.runtime.entry import Entry


@dataclass(frozen=True)
class Compiled:
    """One program as the compiler made it, for each device the same. It cannot be run here."""

    memory: dict[str, int]
    """The compiler's ``memory_analysis`` in bytes of a device, by its own names: ``"argument_size_in_bytes"``."""
    cost: dict[str, float]
    """Its ``cost_analysis`` of a device: ``"flops"``, ``"bytes accessed"``, ``"optimal_seconds"``."""
    seconds: float
    """That the compile took, when it was made."""
    hlo: str
    """The HLO after all optimizations."""
    serialized: bytes
    """The executable, as a runtime with a chip loads it; empty where it was not asked for."""

    def packed(self) -> tuple[dict[str, Any], bytes]:
        """A header and a payload, as the disk cache keeps them."""
        hlo = zlib.compress(self.hlo.encode(), 6)
        header = {"memory": self.memory, "cost": self.cost, "seconds": self.seconds, "hlo_bytes": len(hlo)}
        return header, hlo + self.serialized


def unpacked(entry: Entry) -> Compiled:
    """What `Compiled.packed` gave."""
    header, payload = entry.header, entry.payload
    end = header["hlo_bytes"]
    hlo = zlib.decompress(payload[:end]).decode()
    return Compiled(header["memory"], header["cost"], header["seconds"], hlo, payload[end:])
