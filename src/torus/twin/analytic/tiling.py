"""What an array takes in a TPU's memory, which is laid out in tiles.

The last two dimensions of the layout are padded to tiles of 8 x 128 elements, where fewer than 8 rows take 1, 2 or 4;
a vector is padded to 128 elements times a power of two up to 1024. The compiler picks which dimensions come last.
Source: layouts in programs that the TPU compiler made, such as ``f32[8,4,64]{2,1,0:T(4,128)}``.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations
from math import prod

LANES, ROWS, VECTOR = 128, 8, 1024
_BITS = {"i1": 8, "pred": 8, "token": 0, "bf16": 16, "f16": 16}


@lru_cache(maxsize=4096)
def width(dtype: str) -> float:
    """Bytes of one element, by the name that MLIR has for its dtype."""
    if dtype.startswith("complex<"):
        return 2 * width(dtype[8:-1])
    if dtype in _BITS:
        return _BITS[dtype] / 8
    digits = "".join(c if c.isdigit() else " " for c in dtype).split()
    return max(1, int(digits[0])) / 8 if digits else 4.0


@lru_cache(maxsize=65536)
def padded(shape: tuple[int, ...], dtype: str, last: tuple[int, ...] = ()) -> int:
    """Bytes of an array with its tiles filled up: in the layout that needs the least of those that end with the
    dimensions `last`, if there are such.
    """
    if dtype == "token":
        return 0
    size = list(shape) if last else [s for s in shape if s != 1]
    if not prod(shape):
        return 0
    if len(size) <= 1:
        elements = _vector(size[0] if size else 1)
    else:
        elements = min(_tiled(size, *pair) for pair in permutations(last or range(len(size)), 2))
    return int(elements * width(dtype))


def _vector(size: int) -> int:
    tile = LANES
    while tile < min(size, VECTOR):
        tile *= 2
    return -(-size // tile) * tile


def _tiled(size: list[int], second: int, last: int) -> int:
    rows = 1
    while rows < min(size[second], ROWS):
        rows *= 2
    others = prod(s for i, s in enumerate(size) if i not in (second, last))
    return others * -(-size[second] // rows) * rows * -(-size[last] // LANES) * LANES


@lru_cache(maxsize=65536)
def same_tiles(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether a reshape leaves each element where it is: the lanes stay, and rows are merged or split by whole tiles.

    Lanes that are split by whole tiles count as well: the compiler then picks a layout in which that is so.
    """
    first, second = [s for s in before if s != 1], [s for s in after if s != 1]
    if len(first) < 2 or len(second) < 2 or first == second:
        return True
    if first[-1] != second[-1]:
        return first[-1] % LANES == 0 and second[-1] % LANES == 0
    return first[-2] == second[-2] or (first[-2] % ROWS == 0 and second[-2] % ROWS == 0)
