"""The exchanges between devices that a compiled program makes, read from its optimized HLO."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from torus.twin.estimate import Collective
from torus.twin.topology import Topology

_KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute"
_LINE = re.compile(rf"%(\S+) = (.*?) ({_KINDS})(-start)?\((.*?)\), (.*)$")
_COMPUTATION = re.compile(r"^%?([\w.\-]+) \(.*\) -> .* \{$")
_ARRAY = re.compile(r"\b([a-z]+\d*(?:e\d+m\d+\w*)?)\[([\d,]*)\]")


class Exchange(NamedTuple):
    """One instruction: what it is, the bytes that each device sends, and the devices of one group."""

    kind: str
    sent: int
    group: tuple[int, ...]


def exchanges(hlo: str, devices: int) -> Iterator[Exchange]:
    """Every collective of a program for so many devices. One in a loop's body is found once."""
    computation = ""
    for line in hlo.splitlines():
        if (head := _COMPUTATION.match(line)) is not None:
            computation = head[1]
        if (found := _LINE.search(line)) is None:
            continue
        _, results, kind, started, _, attributes = found.groups()
        sizes = [_bytes(*array) for array in _ARRAY.findall(results)]
        size = max(sizes) if started else sum(sizes)  # a start gives its operands, too
        group = _group(attributes, devices) if kind != "collective-permute" else (0, 1)
        if kind == "all-reduce" and "all-reduce-scatter" in computation:
            kind = "reduce-scatter"  # written as a sum of which each device takes a part: `size` is the whole
        elif kind == "reduce-scatter":
            size *= len(group)
        yield Exchange(kind, _sent(kind, size, len(group)), group)


def collectives(hlo: str, mesh: Mapping[str, int], topology: Topology) -> tuple[Collective, ...]:
    """The exchanges of each kind over each group of axes of a `mesh` {axis: size}, the most bytes first."""
    found: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
    for each in exchanges(hlo, prod(mesh.values())):
        axes = () if each.kind == "collective-permute" else _axes(each.group, mesh)
        found[each.kind, axes].append(each.sent)
    result = [
        Collective(kind, axes, len(sent), sum(sent), sum(sent) / topology.chip.send_bandwidth)
        for (kind, axes), sent in found.items()
    ]
    return tuple(sorted(result, key=lambda each: -each.bytes))


def _sent(kind: str, size: int, members: int) -> int:
    """Bytes that each of the members of a ring sends: `size` is the whole that is summed, gathered or moved."""
    if kind == "collective-permute":
        return size
    return size * (members - 1) // members * (2 if kind == "all-reduce" else 1)


def _bytes(name: str, sizes: str) -> int:
    """Of an array such as ``bf16[3,4]``."""
    kind, bits = re.fullmatch(r"([a-z]+)(\d*)(?:e\d+m\d+\w*)?", name).groups()  # type: ignore[union-attr]
    if not bits:
        width = 1.0 if kind == "pred" else 0.0  # a token
    else:
        width = int(bits) / 8
    return int(np.ceil(prod(int(size) for size in sizes.split(",") if size) * width))


def _group(attributes: str, devices: int) -> tuple[int, ...]:
    """The first group of devices in an instruction's ``replica_groups``, in any of the ways that these are written."""
    if found := re.search(r"replica_groups=\{\{([\d,]+)\}", attributes):
        return tuple(map(int, found[1].split(",")))
    if found := re.search(r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", attributes):
        dims = [int(size) for size in found[3].split(",")]
        order = [int(axis) for axis in found[4].split(",")] if found[4] else range(len(dims))
        return _first(dims, order, int(found[2]))
    if found := re.search(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}", attributes):
        sizes = {axis: int(size) for axis, size in re.findall(r"'([^']+)'=(\d+)", found[1])}
        varied = re.findall(r"'([^']+)'", found[2])
        names = list(sizes)
        order = [i for i, axis in enumerate(names) if axis not in varied]
        order += [names.index(axis) for axis in varied if axis in sizes]
        return _first(list(sizes.values()), order, prod(sizes[axis] for axis in varied if axis in sizes))
    return tuple(range(devices))


def _first(sizes: Sequence[int], order: Sequence[int], members: int) -> tuple[int, ...]:
    """The first of the groups that devices 0, 1, .. make when they lie in a grid of `sizes` and are read in `order`."""
    return tuple(int(i) for i in np.arange(prod(sizes)).reshape(sizes).transpose(order).reshape(-1, members)[0])


def _axes(group: Sequence[int], mesh: Mapping[str, int]) -> tuple[str, ...]:
    """The axes of a mesh along which the devices of a group differ."""
    places = np.array(np.unravel_index(np.array(group), tuple(mesh.values())))
    return tuple(axis for axis, along in zip(mesh, places, strict=True) if len(set(along.tolist())) > 1)
