"""Choosing: a random source that sees the state of the CPU side, and the registry of statement makers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

T = TypeVar("T")

MOST_LIVE = 7


class Chooser:
    """Draws operands and parameters for the next statement of a program over `dtype`.

    Small parameters come up most often, so that signatures repeat and most programs need no compile.
    """

    def __init__(self, rng: random.Random, dtype: torch.dtype):
        self.rng = rng
        self.dtype = dtype
        self.names: dict[str, torch.Tensor] = {}
        self.reinterpreted: set[int] = set()
        self._count = 0

    def look(self, names: dict[str, Any]) -> None:
        """See the state before the next statement."""
        self.names = {n: v for n, v in names.items() if n[0] == "v" and isinstance(v, torch.Tensor) and _usable(v)}

    def new(self) -> str:
        """A name for a new variable."""
        self._count += 1
        return f"v{self._count}"

    def few(self, options: Sequence[T]) -> T:
        """One of the options, the first ones more often."""
        place = 0
        while place < len(options) - 1 and self.rng.random() < 0.5:
            place += 1
        return options[place]

    def any(self, options: Sequence[T]) -> T:
        """One of the options, each as likely."""
        return self.rng.choice(options)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def tensor(self, fits: Callable[[torch.Tensor], bool] = lambda t: True) -> tuple[str, torch.Tensor] | None:
        """A live variable for which `fits` holds; often the newest, so that views of views come up."""
        fitting = [(n, t) for n, t in self.names.items() if fits(t)]
        if not fitting:
            return None
        return fitting[-1] if self.chance(0.4) else self.rng.choice(fitting)

    def dim(self, tensor: torch.Tensor) -> int:
        """A dimension, from either end."""
        dim = self.rng.randrange(tensor.dim()) if tensor.dim() else 0
        return dim - tensor.dim() if tensor.dim() and self.chance(0.2) else dim

    def number(self, dtype: torch.dtype) -> str:
        """A number that all dtypes hold exactly; now and then one of a higher kind."""
        if dtype is torch.bool:
            return self.few(["True", "False", "1"])
        if dtype.is_floating_point and self.chance(0.3):
            return self.any(["0.5", "-1.5", "2.25"])
        if self.chance(0.03):
            return self.any(["1.5", "2**40", "1j"])
        return str(self.rng.randint(-4, 4))

    def is_reinterpreted(self, tensor: torch.Tensor) -> bool:
        """Whether the storage is seen through another dtype too: its floats may be anything: only moves are exact."""
        return tensor.untyped_storage()._cdata in self.reinterpreted

    def calculable(self, tensor: torch.Tensor) -> bool:
        """Whether arithmetic on the tensor has one right answer."""
        return not self.is_reinterpreted(tensor)


def _usable(tensor: torch.Tensor) -> bool:
    """False for one of several views of one call after its base was written to: autograd refuses every use of it."""
    try:
        return tensor.is_leaf or True
    except RuntimeError:
        return False


Maker = Callable[[Chooser], str | None]
VIEWS: list[tuple[float, Maker]] = []
WRITES: list[tuple[float, Maker]] = []
READS: list[tuple[float, Maker]] = []
GRADIENTS: list[tuple[float, Maker]] = []


def statement(family: list[tuple[float, Maker]], weight: float = 1.0) -> Callable[[Maker], Maker]:
    """Register a maker of statements; it gives None when nothing fits."""

    def register(maker: Maker) -> Maker:
        family.append((weight, maker))
        return maker

    return register


def places(tensor: torch.Tensor) -> set[int]:
    """The bytes of the storage that the tensor covers, by the first byte of each element."""
    found = {tensor.storage_offset()}
    for size, stride in zip(tensor.shape, tensor.stride()):
        found = {place + i * stride for place in found for i in range(size)}
    return {place * tensor.element_size() + byte for place in found for byte in range(tensor.element_size())}


def overlaps_itself(tensor: torch.Tensor) -> bool:
    return len(places(tensor)) < tensor.numel() * tensor.element_size()


def written_safely(target: torch.Tensor, source: torch.Tensor) -> bool:
    """False where the result depends on the order of the CPU's loop: PyTorch leaves such overlaps unchecked."""
    if overlaps_itself(target) and 0 not in target.stride():
        return False
    if target.untyped_storage()._cdata != source.untyped_storage()._cdata:
        return True
    if (
        target.storage_offset() == source.storage_offset()
        and target.shape == source.shape
        and target.stride() == source.stride()
    ):
        return True
    if dense(target) and dense(source) and target.element_size() == source.element_size():
        return True  # PyTorch finds the overlap and raises, on both sides
    return not places(target) & places(source)


def dense(tensor: torch.Tensor) -> bool:
    return torch.ops.aten.is_non_overlapping_and_dense(tensor)
