"""The temporaries of a compiled program, from its HLO: XLA:CPU does not say how much memory they take.

The HLO of an executable is in the order in which it runs. Each instruction that makes values makes buffers, which live
until they are read for the last time; what may be computed in place takes over a buffer of the same size that ends
there. That is how XLA assigns buffers, but for the packing of those that lie side by side.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

_NAME = r"%?([\w.\-]+)"
_HEADER = re.compile(rf"(ENTRY )?{_NAME} \(.*\{{$")
_CALLED = re.compile(r"(?:calls|to_apply|body|condition|\w+_computation)=%?([\w.\-]+)|branch_computations=\{([^}]*)\}")
_ARRAY = re.compile(r"(\w+)\[([\d,<=]*)\]")
_OTHER_NAMES = ("bitcast", "tuple", "get-tuple-element", "optimization-barrier", "while", "add-dependency")
_NO_MEMORY = ("parameter", "constant", "after-all", "partition-id", "replica-id")
_NOT_IN_PLACE = frozenset(
    "dot convolution reduce reduce-window sort gather transpose concatenate pad slice reverse custom-call fft "
    "broadcast cholesky triangular-solve rng-bit-generator call conditional select-and-scatter copy "
    "dynamic-slice".split()
)
_RUNS_OTHERS = ("while", "call", "conditional")
_IN_LIBRARY = frozenset(("dot", "convolution", "reduce", "reduce-window"))
"""What a fusion that calls a library writes down inside of it; all else is computed on the way."""


@dataclass
class _Instruction:
    name: str
    op: str
    sizes: list[int]
    operands: list[str]
    rest: str
    is_root: bool


def temporary_bytes(hlo: str) -> int:
    """The most that is alive at once of what is neither an argument nor a result of a scheduled HLO module."""
    entry, computations = _parse(hlo)
    calls = (i for instructions in computations.values() for i in instructions if _calls_library(i))
    for name in {name for instruction in calls for name in _called(instruction)}:
        for instruction in computations.get(name, []):
            if instruction.op not in (*_IN_LIBRARY, *_NO_MEMORY):
                instruction.op = "bitcast"
    known: dict[str, int] = {}

    def peak(name: str) -> int:
        if name not in known:
            known[name] = 0  # HLO has no recursion
            known[name] = _peak(computations.get(name, []), peak)
        return known[name]

    return peak(entry)


def _peak(instructions: list[_Instruction], peak_of: Callable[[str], int]) -> int:
    values, ends, sizes, results = _buffers(instructions)
    live = most = 0
    alive: set[int] = set()
    for i, instruction in enumerate(instructions):
        made = [b for b in _made(instruction, values, sizes) if b not in results]
        ending = [b for b in alive if ends[b] == i]
        for buffer in list(made) if _in_place(instruction) else []:
            if (old := next((b for b in ending if sizes[b] == sizes[buffer]), None)) is not None:
                ending.remove(old)
                alive.discard(old)
                live -= sizes[old]
        live += sum(sizes[b] for b in made)
        alive.update(made)
        inside = max((peak_of(name) for name in _called(instruction)), default=0)
        most = max(most, live + inside)
        for buffer in [b for b in alive if ends[b] <= i]:
            alive.discard(buffer)
            live -= sizes[buffer]
    return most


def _buffers(
    instructions: list[_Instruction],
) -> tuple[dict[str, list[frozenset[int]]], dict[int, int], dict[int, int], frozenset[int]]:
    """The buffers behind each part of each value, where each is read last, its size, and those of the results."""
    values: dict[str, list[frozenset[int]]] = {}
    ends: dict[int, int] = {}
    sizes: dict[int, int] = {}
    results: frozenset[int] = frozenset()
    for i, instruction in enumerate(instructions):
        given = [values.get(name, []) for name in instruction.operands]
        for buffer in frozenset[int]().union(*(part for value in given for part in value)):
            ends[buffer] = i
        values[instruction.name] = _parts(instruction, given)
        if instruction.op not in (*_OTHER_NAMES, *_NO_MEMORY):
            first = len(sizes)
            sizes.update({first + k: size for k, size in enumerate(instruction.sizes)})
            ends.update({first + k: i for k in range(len(instruction.sizes))})
            values[instruction.name] = [frozenset({first + k}) for k in range(len(instruction.sizes))]
        if instruction.is_root:
            results = frozenset[int]().union(*values[instruction.name])
    return values, ends, sizes, results


def _parts(instruction: _Instruction, given: list[list[frozenset[int]]]) -> list[frozenset[int]]:
    """The parts of a value that is another name for its operands."""
    everything = frozenset[int]().union(*(part for value in given for part in value))
    if instruction.op == "tuple":
        return [frozenset[int]().union(*value) for value in given]
    if instruction.op == "get-tuple-element":
        index = int(instruction.rest.partition("index=")[2].partition(",")[0])
        return [given[0][index]] if given and index < len(given[0]) else [everything]
    return given[0] if instruction.op == "while" and given else [everything]


def _made(instruction: _Instruction, values: dict[str, list[frozenset[int]]], sizes: dict[int, int]) -> list[int]:
    if instruction.op in (*_OTHER_NAMES, *_NO_MEMORY):
        return []
    return [buffer for part in values[instruction.name] for buffer in part]


def _in_place(instruction: _Instruction) -> bool:
    if instruction.op == "fusion":
        return "kind=kLoop" in instruction.rest
    return instruction.op not in _NOT_IN_PLACE


def _calls_library(instruction: _Instruction) -> bool:
    return instruction.op == "fusion" and "kind=kCustom" in instruction.rest


def _called(instruction: _Instruction) -> list[str]:
    if instruction.op not in _RUNS_OTHERS and not _calls_library(instruction):
        return []
    found = _CALLED.findall(instruction.rest)
    return [name.strip().lstrip("%") for one, several in found for name in (several.split(",") if several else [one])]


def _parse(hlo: str) -> tuple[str, dict[str, list[_Instruction]]]:
    entry, current = "", ""
    computations: dict[str, list[_Instruction]] = {}
    for line in hlo.splitlines():
        if not line.startswith(" "):
            if (header := _HEADER.match(line)) is not None:
                current = header[2]
                computations[current] = []
                entry = current if header[1] else entry
        elif " = " in line and current:
            computations[current].append(_instruction(line.strip()))
    return entry, computations


def _instruction(line: str) -> _Instruction:
    left, _, right = line.partition(" = ")
    shape, rest = _split(right)
    op, _, arguments = rest.strip().partition("(")
    inside, attributes = _split("(" + arguments)
    operands = re.findall(r"%([\w.\-]+)", inside) if op not in _NO_MEMORY else []
    sizes = [_bytes(dtype, sizes) for dtype, sizes in _ARRAY.findall(shape)]
    return _Instruction(
        left.removeprefix("ROOT ").lstrip("%"), op, sizes, operands, attributes, left.startswith("ROOT ")
    )


def _split(text: str) -> tuple[str, str]:
    """What is within the parentheses that a text begins with, or before its first space; and what follows."""
    if not text.startswith("("):
        first, _, rest = text.partition(" ")
        return first, rest
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[: i + 1], text[i + 1 :]
    return text, ""


def _bytes(dtype: str, sizes: str) -> int:
    if dtype in ("token", "opaque"):
        return 0
    bits = re.match(r"[a-z]+(\d+)", dtype)
    each = 1 if bits is None else max(1, int(bits[1]) // 8)
    return each * prod(int(size.lstrip("<=")) for size in sizes.split(",") if size)
