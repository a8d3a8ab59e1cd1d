"""From a seed to a program, written line by line while it runs."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from tests.fuzz import reads, views, writes
from tests.fuzz.choose import GRADIENTS, MOST_LIVE, READS, VIEWS, WRITES, Chooser, Maker
from tests.fuzz.program import Mismatch, Pair, Program, run_while

__all__ = ["DTYPES", "fuzz", "reads", "views", "writes"]

DTYPES = (torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.bool)
EXTRA_DTYPES = (torch.complex64,)

SHAPES = ((3, 4), (6,), (2, 3, 2), (1, 4), (), (4, 4), (2, 0))
FAMILIES = ((VIEWS, 9), (WRITES, 8), (READS, 5))
LONGEST = 18


def fuzz(seed: int, dtypes: Sequence[torch.dtype] = DTYPES, mode: str = "strict") -> tuple[Program, Mismatch | None]:
    """Make the program of a seed, which is the same in every mode, and run it."""
    rng = random.Random(f"torus {seed}")
    chooser = Chooser(rng, rng.choice(list(dtypes)))
    program = Program(seed)
    length = rng.randint(6, LONGEST)
    families = [*FAMILIES, (GRADIENTS, 5)] if chooser.dtype.is_floating_point and rng.random() < 0.6 else list(FAMILIES)

    def next_line(pair: Pair, number: int) -> str | None:
        if number == length:
            return None
        chooser.look(pair.cpu)
        line = (
            _leaf(chooser, families) if number == 0 or (number < 3 and rng.random() < 0.4) else _line(chooser, families)
        )
        program.lines.append(line)
        return line

    return program, run_while(next_line, mode, seed)


def _line(chooser: Chooser, families: list[tuple[list[tuple[float, Maker]], int]]) -> str:
    if len(chooser.names) > MOST_LIVE:
        return f"del {chooser.any(list(chooser.names))}"
    while True:
        family = chooser.rng.choices([f for f, _ in families], [w for _, w in families])[0]
        maker = chooser.rng.choices([m for _, m in family], [w for w, _ in family])[0]
        line = maker(chooser)
        if line is not None:
            return line
        if not chooser.names:
            return _leaf(chooser, families)


def _leaf(c: Chooser, families: list[tuple[list[tuple[float, Maker]], int]]) -> str:
    shape = c.few(SHAPES)
    dtype = c.dtype if c.chance(0.85) else c.any(DTYPES)
    grad = ".requires_grad_()" if len(families) > len(FAMILIES) and dtype.is_floating_point and c.chance(0.6) else ""
    if c.chance(0.25):
        make = c.any(
            [
                "torch.ones({s}, dtype={d}, device=device)",
                "torch.full({s}, 3, dtype={d}, device=device)",
                "torch.zeros({s}, dtype={d}, device=device)",
            ]
        )
        return f"{c.new()} = " + make.format(s=shape, d=dtype) + grad
    count = torch.Size(shape).numel()
    modulus = 3 if dtype is torch.bool else 7
    values = f"((torch.arange({count}) * {c.any([3, 4, 5])} + {c.rng.randrange(7)}) % {modulus} - 1)"
    return f"{c.new()} = {values}.reshape({shape}).to({dtype}).clone().to(device){grad}"
