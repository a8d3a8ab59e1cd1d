"""What the core tells Python about a signature that has no program yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from torus.backend.lowering.strided import View


class TensorArg(NamedTuple):
    """A tensor argument: its view, and the array that its storage holds (`layout`; None while nothing has been
    written).
    """

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    layout: tuple[torch.dtype, tuple[int, ...]] | None
    storage_nbytes: int
    offset_word: int
    slot: int
    written: bool

    @property
    def view(self) -> View:
        """Sizes and strides in elements of the tensor's dtype."""
        return View(self.sizes, self.strides)

    @property
    def storage_numel(self) -> int:
        """How many elements of the tensor's dtype its storage holds."""
        return self.storage_nbytes // self.dtype.itemsize


class ScalarArg(NamedTuple):
    """A number in the pack, the last argument; `dtype` is set for a CPU tensor, which keeps its own."""

    kind: str
    packed: torch.dtype
    word: int
    dtype: torch.dtype | None


@dataclass(frozen=True)
class Request:
    """One signature. `args` are (name, keyword-only, encoded value) in the order of the rule's schema."""

    rule: str
    op: str
    args: list[tuple[str, bool, tuple[str, Any]]]
    tensors: list[TensorArg]
    scalars: list[ScalarArg]
    pack_words: int
    random_word: int
    device: int
    precision: int
    default_dtype: torch.dtype
    lengths: tuple[int, ...]

    @classmethod
    def from_core(cls, fields: tuple[Any, ...]) -> Request:
        """Name the fields of the tuple that the core sends."""
        rule, op, args, tensors, scalars, *rest = fields
        return cls(rule, op, args, [TensorArg(*t) for t in tensors], [ScalarArg(*s) for s in scalars], *rest)

    def describe(self) -> str:
        """The call as people read it: ``aten::add.Tensor(self: float32[4, 4], other: 1 number)``."""
        shown = ", ".join(f"{name}: {self._show(encoded)}" for name, _, encoded in self.args)
        return f"{self.op}({shown})"

    def _show(self, encoded: tuple[str, Any]) -> str:
        kind, value = encoded
        if kind == "tensor":
            tensor = self.tensors[value]
            return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.sizes)}"
        if kind == "scalar":
            return f"{self.scalars[value].kind} number"
        if kind == "usual":
            return repr(value[1])
        if kind == "list":
            return "[" + ", ".join(self._show(v) for v in value) + "]"
        return kind if kind == "random" else repr(value)


class Promise(NamedTuple):
    """PyTorch's word on one result: dtype, sizes, strides."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


class Result(NamedTuple):
    """How one result of a program is stored: the tensor's metadata, the array's layout, and which tensor argument it is
    written to (-1: none).
    """

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    layout_dtype: torch.dtype
    layout_shape: tuple[int, ...]
    writes: int
