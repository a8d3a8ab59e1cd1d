"""Programs of a script on this host, compiled for a TPU that is not here: what ``torus cache warm --topology`` fills a
cache with.
"""

from __future__ import annotations

from typing import Any

from torus.runtime.target import Target
from torus.twin.compiler import Compiler
from torus.twin.topology import Topology


def target(name: str) -> Target:
    """One chip of a topology, as what programs are made for. Raises ValueError and CompilerMissing."""
    compiler = Compiler(Topology.parse(name))

    def compile(stablehlo: str | bytes, options: dict[str, Any]) -> bytes:
        return compiler.compile(stablehlo, options=options).serialized

    return Target("tpu", compiler.environment(), compile)
