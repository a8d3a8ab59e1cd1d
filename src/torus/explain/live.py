"""What a run holds in memory at most, found by running it on tensors without data."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torus.explain.points import Points


def peak_bytes(run: Callable[[Points], Any], points: Points, count: int) -> int:
    """The most bytes alive at once while `run` sees `count` rows like those of the points, these included.

    Every op's result counts from the op to its last use, as when ops run one by one; parameters and other tensors that
    are there already do not. No data is made and no op runs.
    """
    with FakeTensorMode(allow_non_fake_inputs=True) as fake, _Live(fake) as live:
        given = tuple(
            torch.empty((count, *point.shape[1:]), dtype=point.dtype, device=point.device) for point in points
        )
        result = run(given)
        del result
    return live.peak


class _Live(TorchDispatchMode):
    """Counts the bytes of results from their op on until they are freed."""

    def __init__(self, fake: FakeTensorMode) -> None:
        super().__init__()
        self._fake = fake
        self.now = self.peak = 0
        self._known: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def __torch_dispatch__(
        self, func: torch._ops.OpOverload, types: Any, args: Any = (), kwargs: Any | None = None
    ) -> Any:
        args, kwargs = _pytree.tree_map_only(torch.Tensor, self._seen, (args, kwargs or {}))
        result = func(*args, **kwargs)
        for tensor in _pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor)
        return result

    def _seen(self, tensor: torch.Tensor) -> torch.Tensor:
        """An operand, without data; its memory is not this run's unless it was counted."""
        tensor = tensor if isinstance(tensor, FakeTensor) else self._fake.from_tensor(tensor)
        self._known.add(tensor.untyped_storage())
        return tensor

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage in self._known:
            return
        self._known.add(storage)
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._freed, size)

    def _freed(self, size: int) -> None:
        self.now -= size
