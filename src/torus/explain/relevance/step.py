"""One op of a tape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class Step:
    """One op. `active` are the places among its flattened arguments whose tensors depend on the points, and the slots
    of these; `outputs` the slots of its results, None for a result that is no tensor.
    """

    op: torch._ops.OpOverload
    arguments: tuple[Any, ...]
    structure: pytree.TreeSpec
    active: tuple[tuple[int, int], ...]
    outputs: tuple[int | None, ...]

    def run(self, inputs: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """The op's results with other tensors in the active places."""
        return self.changed(dict(zip((place for place, _ in self.active), inputs, strict=True)))

    def changed(self, replaced: dict[int, Any]) -> tuple[Any, ...]:
        """The op's results with other values in some places."""
        leaves = [replaced.get(place, argument) for place, argument in enumerate(self.arguments)]
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return tuple(pytree.tree_leaves(self.op(*args, **kwargs)))

    def to(self, dtype: torch.dtype) -> Step:
        """The same in another floating dtype: its constants, and the dtypes that it is asked for."""

        def converted(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor):
                return leaf.to(dtype) if leaf.is_floating_point() else leaf
            return dtype if isinstance(leaf, torch.dtype) and leaf.is_floating_point else leaf

        return replace(self, arguments=tuple(map(converted, self.arguments)))

    @property
    def name(self) -> str:
        """As in PyTorch's schemas, without the overload: ``"aten::mul"``."""
        return self.op._schema.name
