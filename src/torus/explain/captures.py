"""Programs captured from a model and kept for later calls, for as long as the model lives and has not been changed."""

from __future__ import annotations

import collections
import weakref
from collections.abc import Callable, Hashable, MutableMapping
from typing import Any

import torch
from torch.utils import _pytree

from torus.explain.function import Function, ModelFunction

Programs = MutableMapping[Hashable, Callable[..., Any]]

MOST = 32
"""Programs kept for one model; the one unused for longest goes first."""

_kept: weakref.WeakKeyDictionary[torch.nn.Module, Programs] = weakref.WeakKeyDictionary()


class Recent(collections.OrderedDict[Hashable, Callable[..., Any]]):
    """A mapping of the `MOST` entries that were read last."""

    def __getitem__(self, key: Hashable) -> Callable[..., Any]:
        self.move_to_end(key)
        return super().__getitem__(key)

    def __setitem__(self, key: Hashable, value: Callable[..., Any]) -> None:
        super().__setitem__(key, value)
        if len(self) > MOST:
            self.popitem(last=False)


class Bindings:
    """What a function reads besides its points and its parameters, so that a program can be given it anew.

    `tensors` are arguments of the program; `key` is everything else that decides what is captured, None where that
    cannot be told (then a program serves its own function only), as for a function that is not a model's.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        leaves, self._spec = _pytree.tree_flatten(_read(function))
        self._leaves = leaves
        self._lifted = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = tuple(leaves[i] for i in self._lifted)
        self.key = self._key()

    def with_tensors(self, tensors: tuple[torch.Tensor, ...]) -> Function:
        """The function with others in the place of `tensors`."""
        if not isinstance(self.function, ModelFunction):
            return self.function
        leaves = list(self._leaves)
        for index, tensor in zip(self._lifted, tensors, strict=True):
            leaves[index] = tensor
        return self.function.rebound(*_pytree.tree_unflatten(leaves, self._spec))

    def programs(self) -> Programs:
        """Where the programs of this function are kept."""
        model = getattr(self.function, "model", None)
        return {} if self.key is None or model is None else _kept.setdefault(model, Recent())

    def _key(self) -> Hashable | None:
        static = [_constant(leaf) for i, leaf in enumerate(self._leaves) if i not in self._lifted]
        if not isinstance(self.function, ModelFunction) or None in static:
            return None
        model = self.function.model
        if not isinstance(model, torch.nn.Module):
            return None
        return tuple(static), str(self._spec), self.function.examples, id(self.function.layer), state_of(model)


def state_of(model: torch.nn.Module) -> Hashable:
    """What of a model decides the ops of a call: modules, their plain attributes, hooks and which tensors they hold."""
    return tuple(
        (id(module), type(module), tuple(_hooks(module)), tuple(_attributes(module)), tuple(_held(module)))
        for module in model.modules()
    )


def _hooks(module: torch.nn.Module) -> list[int]:
    """The numbers of the hooks, which are never used twice in a process."""
    return [
        number
        for hooks in (
            module._forward_hooks,
            module._forward_pre_hooks,
            module._backward_hooks,
            module._backward_pre_hooks,
        )
        for number in hooks
    ]


def _attributes(module: torch.nn.Module) -> list[tuple[str, Hashable]]:
    return [(k, v) for k, v in vars(module).items() if isinstance(v, int | float | str | None)]


def _held(module: torch.nn.Module) -> list[Hashable]:
    held = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    return [(id(t), t.shape, t.dtype, t.device) for t in held]


def _read(function: Function) -> tuple[Any, ...]:
    """Inputs, arguments and target; no inputs where the points stand for them, and not for a layer's output."""
    if not isinstance(function, ModelFunction):
        return ()
    return function.inputs if function.layer is not None else (), function.arguments, function.target


def _constant(leaf: Any) -> Hashable | None:
    """A constant for the key; None for what may change while it stays the same object."""
    plain = isinstance(leaf, int | float | str | torch.dtype | torch.device) or leaf is None or callable(leaf)
    return (type(leaf), leaf) if plain else None
