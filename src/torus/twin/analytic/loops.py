"""How often a loop runs, where the program says it: a counter that is compared with a constant."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torus.twin.module import Op, Region


def trips(op: Op, constants: Mapping[int, int]) -> tuple[int, bool]:
    """``(rounds, known)`` of a while loop whose counter grows by 1; a branch is one round."""
    if op.name != "while":
        return 1, True
    condition = op.regions[0]
    starts = {a: constants.get(o) for a, o in zip(condition.arguments, op.operands, strict=True)}
    for inner in condition.ops:
        if inner.name == "compare":
            counter, limit = inner.operands
            start, end = starts.get(counter), constants.get(limit)
            if start is not None and end is not None:
                return max(0, end - start + ("LE" in inner.attributes)), True
    return 1, False


def integers(region: Region) -> dict[int, int]:
    """Values of the integer constants in a region and all regions in it."""
    found = {}
    for op in region.ops:
        if op.name == "constant" and (number := re.search(r"dense<(-?\d+)>", op.attributes)):
            found[op.results[0]] = int(number[1])
        for inner in op.regions:
            found |= integers(inner)
    return found
