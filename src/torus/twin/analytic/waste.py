"""Work that goes into filling up the matrix unit, and the change that would help.

A matmul's columns and depth are padded to the unit's size, its rows to 8. A convolution is the matmul of its patches.
"""

from __future__ import annotations

from math import prod

from torus.twin.analytic.flops import contraction, dimensions
from torus.twin.analytic.tiling import ROWS
from torus.twin.chips import Chip
from torus.twin.estimate import Padding
from torus.twin.module import Module, Op, Value

LEAST = 0.01
"""The share of an op's work from which on waste is told."""
Sizes = tuple[int, int, int, int]
"""(batch, rows, columns, depth)"""


def padding(program: Module, chip: Chip) -> tuple[Padding, ...]:
    """Ops whose sizes leave a part of the matrix unit idle, first those that waste the most work."""
    found: dict[tuple[str, Sizes], int] = {}
    for op in program.main.ops:
        if sizes := _sizes(op, program.values):
            found[op.name, sizes] = found.get((op.name, sizes), 0) + 1
    unit = chip.matrix_unit
    rows = [(_lost(sizes, unit) * count, name, sizes, count) for (name, sizes), count in found.items()]
    made = (_padding(name, sizes, count, unit) for _, name, sizes, count in sorted(rows, reverse=True))
    return tuple(each for each in made if each.waste >= LEAST)


def _sizes(op: Op, values: list[Value]) -> Sizes | None:
    if op.name == "dot_general":
        return contraction(op, values)
    if op.name != "convolution" or (dims := dimensions(op)) is None:
        return None
    kernel, result = values[op.operands[1]].shape, values[op.results[0]].shape
    columns = kernel[dims["kernel"][0][0]]
    groups = (op.ints("feature_group_count") or (1,))[0]
    return groups, prod(result) // max(1, columns), columns // groups, prod(kernel) // max(1, columns)


def _up(size: int, tile: int) -> int:
    return -(-size // tile) * tile


def _lost(sizes: Sizes, unit: int) -> int:
    batch, rows, columns, depth = sizes
    return 2 * batch * (_up(rows, ROWS) * _up(columns, unit) * _up(depth, unit) - rows * columns * depth)


def _padding(name: str, sizes: Sizes, count: int, unit: int) -> Padding:
    _, rows, columns, depth = sizes
    lost = _lost(sizes, unit)
    parts = (("rows", rows, ROWS), ("columns", columns, unit), ("depth", depth, unit))
    part, size, tile = max(parts, key=lambda p: _up(p[1], p[2]) / max(1, p[1]))
    change = f"{part} of {_up(size, tile)} instead of {size}: {_up(size, tile) / max(1, size):.1f}x of the work is used"
    waste = lost / max(1, lost + 2 * prod(sizes))
    return Padding(f"{name} {'x'.join(map(str, sizes))}", count, waste, change)
