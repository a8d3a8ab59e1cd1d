"""PyTorch values as a bundle holds them: weights as NumPy arrays, the structure of results as a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from torus.backend.lowering.dtypes import to_name
from torus.bundle import BundleError
from torus.bundle.tree import Tree
from torus.bundle.weights import Array, dtype


class Arrays:
    """Tensors as NumPy arrays: the same array for tensors that are the same memory, such as tied weights."""

    def __init__(self) -> None:
        self._known: dict[Any, Array] = {}

    def of(self, tensor: torch.Tensor) -> Array:
        """The values of a tensor of any device, dtype and strides."""
        storage = tensor.untyped_storage()._cdata
        key = (storage, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        if key not in self._known:
            self._known[key] = to_numpy(tensor)
        return self._known[key]


def to_numpy(tensor: torch.Tensor) -> Array:
    """The values of `tensor`; without a copy where it is a dense one on the CPU."""
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    raw: Array = dense.reshape(-1).view(torch.uint8).numpy()
    return raw.view(dtype(to_name(tensor.dtype))).reshape(tuple(tensor.shape))


def tree_of(spec: Any, leaf: Callable[[], Tree]) -> Tree:
    """The structure of a PyTorch result, with ``leaf()`` for each of its leaves in order.

    Classes that PyTorch takes apart by field names, such as named tuples and the outputs of transformers, become dicts.
    Raises BundleError for a dict whose keys are not strings.
    """
    if spec.is_leaf():
        return leaf()
    children = [tree_of(child, leaf) for child in spec.children()]
    if spec.type in (list, tuple):
        return {spec.type.__name__: children}
    keys = list(_fields(spec))
    if len(keys) != len(children):
        return {"list": children}
    if not all(isinstance(key, str) for key in keys):
        raise BundleError(f"a bundle returns dicts with strings as keys, and the model has {keys}")
    return {"dict": dict(zip(keys, children))}


def _fields(spec: Any) -> Iterator[Any]:
    context = spec.context
    if hasattr(context, "_fields"):  # the class of a named tuple
        yield from context._fields
        return
    for part in context if isinstance(context, (list, tuple)) else ():
        # A dict's context is its keys; that of dataclasses and of OrderedDict's kin holds them one level deeper.
        yield from part if isinstance(part, (list, tuple)) else [part]
