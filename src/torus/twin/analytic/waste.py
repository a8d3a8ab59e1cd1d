"""Work and memory that go into filling up tiles, and the change that would help."""

from __future__ import annotations

from math import prod

from torus.twin.analytic.flops import contraction
from torus.twin.chips import Chip
from torus.twin.estimate import Padding
from torus.twin.module import Module


def padding(program: Module, chip: Chip) -> tuple[Padding, ...]:
    """Dots whose sizes leave a part of the matrix unit idle, first those that waste the most work."""
    found: dict[tuple[int, int, int, int], int] = {}
    for op in program.main.ops:
        if op.name == "dot_general":
            sizes = contraction(op, program.values)
            found[sizes] = found.get(sizes, 0) + 1
    rows = [(_lost(sizes, chip.matrix_unit) * count, sizes, count) for sizes, count in found.items()]
    return tuple(_padding(sizes, count, chip.matrix_unit) for lost, sizes, count in sorted(rows, reverse=True) if lost)


def _up(size: int, tile: int) -> int:
    return -(-size // tile) * tile


def _lost(sizes: tuple[int, int, int, int], unit: int) -> int:
    batch, rows, columns, depth = sizes
    return 2 * batch * (_up(rows, 8) * _up(columns, unit) * _up(depth, unit) - rows * columns * depth)


def _padding(sizes: tuple[int, int, int, int], count: int, unit: int) -> Padding:
    batch, rows, columns, depth = sizes
    useful = 2 * prod(sizes)
    waste = _lost(sizes, unit) / (useful + _lost(sizes, unit))
    names = (("rows", rows, 8), ("columns", columns, unit), ("depth", depth, unit))
    name, size, tile = max(names, key=lambda n: _up(n[1], n[2]) / max(1, n[1]))
    gain = _up(size, tile) / max(1, size)
    change = f"{name} of {_up(size, tile)} instead of {size}: {gain:.1f}x of the work is used"
    return Padding(f"dot_general {batch}x{rows}x{columns}x{depth}", count, waste, change)
