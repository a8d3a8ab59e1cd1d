"""Records the ops that depend on some tensors, as functional ones, whatever is written in place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torus.explain.relevance import expand
from torus.explain.relevance.step import Step

aten = torch.ops.aten

SHAPE_ONLY = frozenset(
    f"aten::{name}"
    for name in """
        empty_like full_like new_empty new_empty_strided new_full new_ones new_zeros ones_like rand_like randint_like
        randn_like zeros_like
    """.split()
)
"""Ops whose result does not depend on the values of their arguments."""


@dataclass(frozen=True)
class _Copy:
    """All elements of a storage after it was written to `version` times: a vector that nobody writes to."""

    elements: torch.Tensor
    version: int


class Recorder(TorchDispatchMode):
    """Appends every op that depends on the points to `steps`; `slots` counts the tensors that these are about.

    A tensor is known by its identity, and its slot holds until its storage is written to. A write makes a copy of the
    storage with the result put into it, from which tensors that share the storage are read when they are next used.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.slots = 0
        self._alive: list[torch.Tensor] = []  # or identities would come back
        self._known: dict[int, tuple[int, int]] = {}  # identity to slot, and version of the storage then
        self._first: dict[int, torch.Tensor] = {}  # storage to the tensor that it was made for
        self._copies: dict[int, _Copy] = {}  # storage to its elements, once it was written to

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """PyTorch would import its compiler, seconds, to keep it from looking at this mode."""
        return False

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if op.namespace == "prim":  # a question about a tensor without data, such as its device
            return op(*args, **kwargs)
        leaves, structure = pytree.tree_flatten((args, kwargs))
        found = [(place, self.slot(leaf)) for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        active = tuple((place, slot) for place, slot in found if slot is not None)
        if op._schema.is_mutable:
            return self._write(op, args, kwargs, bool(active))
        if not active or op._schema.name in SHAPE_ONLY:
            return op(*args, **kwargs)
        if (smaller := expand.expansion(op)) is not None:
            with self:
                result = smaller(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = op(*args, **kwargs)
        outputs = tuple(self.add(t) if isinstance(t, torch.Tensor) else None for t in pytree.tree_leaves(result))
        self.steps.append(Step(op, tuple(leaves), structure, active, outputs))
        return result

    def add(self, tensor: torch.Tensor) -> int:
        """A slot for a new tensor that depends on the points."""
        self._first.setdefault(_storage(tensor), tensor)
        self.slots += 1
        self._know(tensor, self.slots - 1)
        return self.slots - 1

    def slot(self, tensor: torch.Tensor) -> int | None:
        """Where the present value of a tensor stands; None for one that does not depend on the points."""
        slot, version = self._known.get(id(tensor), (None, 0))
        copy = self._copies.get(_storage(tensor))
        if copy is None or copy.version == version:
            return slot
        if copy.elements.dtype != tensor.dtype:
            raise NotImplementedError(f"{copy.elements.dtype} is written to and then read as {tensor.dtype}")
        with self:
            read = copy.elements.as_strided(*_layout(tensor))
        slot = self.slot(read)
        self._know(tensor, slot)
        return slot

    def _write(self, op: Any, args: Any, kwargs: Any, active: bool) -> Any:
        """The functional op on what is there, and its result in the place of the first argument."""
        target = args[0]
        if torch.Tag.inplace_view in op.tags:
            return self._reshape(op, args, kwargs)
        self._keep_constants(target)
        if active:
            with self:
                slot = self._put(target, _functional(op)(*args, **kwargs))
            self._know(target, slot)
        return op(*args, **kwargs)

    def _reshape(self, op: Any, args: Any, kwargs: Any) -> Any:
        """An op that changes the sizes and strides of its argument, and no value."""
        with self:
            before = aten.alias(args[0])
        result = op(*args, **kwargs)
        with self:
            after = before.as_strided(*_layout(args[0]))
        self._know(args[0], self.slot(after))
        return result

    def _put(self, target: torch.Tensor, value: torch.Tensor) -> int | None:
        """The target's storage has a new value in the target's place; its slot."""
        value = value.to(target.dtype).expand(target.shape)
        old = self._copies.get(_storage(target))
        elements = _into(self._elements(target), target, value)
        self._copies[_storage(target)] = _Copy(elements, 1 if old is None else old.version + 1)
        return self.slot(value)

    def _elements(self, tensor: torch.Tensor) -> torch.Tensor:
        """All elements of a tensor's storage before a write."""
        if (copy := self._copies.get(_storage(tensor))) is not None:
            return copy.elements
        size = tensor.untyped_storage().nbytes() // tensor.element_size()
        with torch.utils._python_dispatch._disable_current_modes():
            now = tensor.detach().as_strided((size,), (1,), 0).clone()
        first = self._first.get(_storage(tensor))
        return now if first is None else _into(now, first, first)

    def _keep_constants(self, target: torch.Tensor) -> None:
        """Constants of earlier steps that are about to be written to are copied."""
        for index, step in enumerate(self.steps):
            arguments = [
                leaf.clone() if isinstance(leaf, torch.Tensor) and _storage(leaf) == _storage(target) else leaf
                for leaf in step.arguments
            ]
            if any(new is not old for new, old in zip(arguments, step.arguments, strict=True)):
                self.steps[index] = replace(step, arguments=tuple(arguments))

    def _know(self, tensor: torch.Tensor, slot: int | None) -> None:
        copy = self._copies.get(_storage(tensor))
        if slot is not None:
            self._known[id(tensor)] = slot, copy.version if copy else 0
        self._alive.append(tensor)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _layout(tensor: torch.Tensor) -> tuple[list[int], list[int], int]:
    return list(tensor.shape), list(tensor.stride()), int(tensor.storage_offset())


def _into(elements: torch.Tensor, place: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A vector of a storage's elements with a value in the place of a tensor."""
    if place.numel() == elements.numel() and place.is_contiguous():
        return value.reshape(-1)
    index = torch.arange(elements.numel(), device=place.device).as_strided(*_layout(place)).reshape(-1)
    return elements.index_copy(0, index, value.reshape(-1))


def _functional(op: Any) -> Any:
    """The op that returns what another writes into its first argument."""
    name = op._schema.name.split("::")[1]
    packet = getattr(aten, name[:-1], None) if name.endswith("_") else None
    if packet is None or op._overloadname not in packet.overloads():
        raise NotImplementedError(f"{op} writes to a tensor that depends on the inputs, and has no functional form")
    return getattr(packet, op._overloadname)
