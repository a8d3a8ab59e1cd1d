"""How often a loop runs, where its condition says it: a counter compared with a constant."""

from __future__ import annotations

import re

from torus.twin.module import Module, Op


def trips(op: Op, module: Module) -> tuple[int, bool]:
    """``(rounds, known)`` of a while loop; a branch is one round. The counter starts at 0 and grows by 1."""
    if op.name != "while":
        return 1, True
    condition = op.regions[0]
    constants = {i: _constant(o) for o in condition.ops if o.name == "constant" for i in o.results}
    for inner in condition.ops:
        if inner.name == "compare":
            for operand in inner.operands:
                found = constants.get(operand)
                if found is not None:
                    return max(1, found), True
    return 1, False


def _constant(op: Op) -> int | None:
    found = re.search(r"dense<(-?\d+)>", op.attributes)
    return int(found.group(1)) if found else None
