"""What a pending tensor stands for: ``torch.tpu.show``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from torus import _C
from torus.backend import NAME
from torus.backend.eager.report import shorten

if TYPE_CHECKING:
    from torus.backend.eager.recipe import Recipe
    from torus.backend.eager.request import Result

_WHAT = ("code", "stablehlo")
_TYPE = re.compile(r"%arg\d+: tensor<((?:[^<>]|<[^<>]*>)*)>")
_ELEMENTS = {"i1": "bool", "complex<f32>": "complex64", "complex<f64>": "complex128"}
_KINDS = {"bf": "bfloat", "ui": "uint", "f": "float", "i": "int"}
_NUMBERS = "<numbers>"


class Shown(str):
    """Text that a prompt shows as `print` does."""

    def __repr__(self) -> str:
        return str(self)


def show(tensor: torch.Tensor, what: str = "code") -> Shown:
    """The recorded ops that a pending tensor depends on. Runs nothing.

    ``"code"`` gives a line for each op, in order, with the dtype and the sizes of its results, and the line of the
    program that recorded it where that is kept (inside of ``torch.tpu.explain()``, and for ops whose indices are
    checked). ``"stablehlo"`` gives them as one StableHLO module, before any compiler has seen it. In both, ``%arg0``,
    ``%arg1``, ... are the arrays behind the tensors that were there before.

    For a tensor that is not pending, the text says so. Raises ValueError for a tensor that is not on this device and
    for another `what`, TypeError for what is not a tensor, and what computing the tensor has failed with, if it has.
    """
    if what not in _WHAT:
        raise ValueError(f"what is one of {', '.join(map(repr, _WHAT))}, not {what!r}")
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"expected a tensor, got {type(tensor).__name__}")
    if tensor.device.type != NAME:
        raise ValueError(
            f'only ops on the device "{NAME}" are recorded, and this tensor is on "{tensor.device}"; '
            f'move what it is made from with .to("{NAME}") first'
        )
    pending = _C.pending_ops(tensor)
    if pending is None:
        _C.array_of(tensor)  # raises what it failed with
        return Shown(f"computed: {_describe(tensor)} on {tensor.device}, nothing pending")
    nodes, slot, _ = pending
    graph = _Graph([_Op(*node) for node in nodes], slot)
    return Shown(_code(graph, tensor) if what == "code" else graph.stablehlo())


@dataclass(frozen=True)
class _Op:
    """A recorded op as the core describes it."""

    recipe: Recipe
    inputs: Sequence[int]
    words: int
    first: int
    name: str
    place: str

    @property
    def results(self) -> list[Result]:
        """Its results that have numbers: `first`, `first` + 1, ..."""
        return [result for result in self.recipe.plan.results if result is not None]

    def argument_types(self) -> list[str]:
        """The arrays that it takes, ``"float32[4, 4]"``."""
        _, _, main = self.recipe.text.partition("@main(")
        return [_read_type(kind) for kind in _TYPE.findall(main.partition("{\n")[0])]


class _Graph:
    """The ops that a result depends on, with results and arguments numbered anew from 0 on."""

    def __init__(self, ops: Sequence[_Op], slot: int) -> None:
        self.recorded = len(ops)
        self.ops = _needed(ops, slot)
        self.results: dict[int, int] = {}
        self.arguments: dict[int, int] = {}
        self.types: list[str] = []
        for op in self.ops:
            for number, kind in zip(op.inputs, op.argument_types()):
                if number < 0 and number not in self.arguments:
                    self.arguments[number] = len(self.arguments)
                    self.types.append(kind)
            for i in range(len(op.results)):
                self.results[op.first + i] = len(self.results)
        self.slot = self.results[slot]

    def name(self, number: int) -> str:
        """An input as it is written in the code."""
        return f"%arg{self.arguments[number]}" if number < 0 else f"%{self.results[number]}"

    def stablehlo(self) -> str:
        """One module of all ops. Raises ValueError for an op whose module has more than functions."""
        from torus.backend.eager.compose import NodeSpec, compose

        nodes, words = [], 0
        for op in self.ops:
            inputs = [~self.arguments[i] if i < 0 else self.results[i] for i in op.inputs]
            nodes.append(NodeSpec(op.recipe, inputs, words, op.words))
            words += op.words
        return compose(nodes, [self.slot], words).text


def _needed(ops: Sequence[_Op], slot: int) -> list[_Op]:
    """The ops that result `slot` depends on, in their order."""
    wanted, needed = {slot}, []
    for op in reversed(ops):
        if any(op.first + i in wanted for i in range(len(op.results))):
            wanted.update(op.inputs)
            needed.append(op)
    return needed[::-1]


def _code(graph: _Graph, tensor: torch.Tensor) -> str:
    many = f"{len(graph.ops)} of {graph.recorded} recorded ops"
    lines = [f"# {_describe(tensor)} on {tensor.device}, pending: needs {many}"]
    if any(op.words for op in graph.ops):
        lines.append(f"# {_NUMBERS}: scalars, offsets of views and random state, which are no part of a program")
    lines += [f"%arg{i}: {kind}" for i, kind in enumerate(graph.types)]
    lines += [_statement(graph, op) for op in graph.ops]
    results = [result for op in graph.ops for result in op.results]
    lines.append(f"return %{graph.slot}{_read_as(tensor, results[graph.slot])}")
    return "\n".join(lines)


def _statement(graph: _Graph, op: _Op) -> str:
    left = ", ".join(graph.name(op.first + i) for i in range(len(op.results)))
    arguments = ", ".join([*map(graph.name, op.inputs), *([_NUMBERS] if op.words else [])])
    kinds = ", ".join(_describe_result(result) for result in op.results)
    place = f"  {shorten(op.place)}" if op.place else ""
    return f"{left} = {op.name}({arguments})  # {kinds}{place}"


def _read_as(tensor: torch.Tensor, result: Result) -> str:
    """How the tensor looks at the result, where it is a view of it."""
    whole = (result.dtype, tuple(result.sizes), tuple(result.strides), 0)
    if (tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset()) == whole:
        return ""
    return f"  # as {_describe(tensor)}, strides {list(tensor.stride())}, offset {tensor.storage_offset()}"


def _describe(tensor: Any) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _describe_result(result: Result) -> str:
    written = " in place" if result.writes >= 0 else ""
    return f"{str(result.dtype).removeprefix('torch.')}{list(result.sizes)}{written}"


def _read_type(kind: str) -> str:
    """``4x2xf32`` -> ``float32[4, 2]``."""
    match = re.fullmatch(r"((?:\d+x)*)(.*)", kind)
    assert match is not None
    sizes = [int(size) for size in match[1].split("x")[:-1]]
    return f"{_element(match[2])}{sizes}"


def _element(kind: str) -> str:
    if kind in _ELEMENTS:
        return _ELEMENTS[kind]
    if kind.startswith("f8"):
        return f"float8_{kind[2:].lower()}"
    start = next((start for start in _KINDS if kind.startswith(start)), "")
    return _KINDS.get(start, "") + kind.removeprefix(start)
