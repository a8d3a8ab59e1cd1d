"""Where each op of a graph comes from: the module that called it, in the backward pass too, and what is done again."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

PLACE, PHASE, AGAIN, UNIT = "torus.place", "torus.phase", "torus.again", "torus.unit"
"""Keys of a node's meta: the module's path or the user's line; "forward", "backward" or "optimizer"; whether the op
repeats one of the forward pass (activation checkpointing); of an update, the parameter."""


class Notes(TorchDispatchMode):
    """Notes on each node that is traced meanwhile."""

    def __init__(self, model: torch.nn.Module | None) -> None:
        super().__init__()
        from torch.fx.experimental.proxy_tensor import get_proxy_mode

        proxy = get_proxy_mode()
        assert proxy is not None, "notes are taken while a graph is traced"
        self.nodes = proxy.tracer.graph._root  # a ring; its last node is the newest
        self.paths = {id(m): path for path, m in model.named_modules()} if model is not None else {}
        self.stack: list[str] = []
        self.phase, self.place = "forward", ""
        self.by_sequence: dict[int, str] = {}
        self.hooks: list[Any] = []

    def __enter__(self) -> Any:
        module = torch.nn.modules.module
        self.hooks = [
            module.register_module_forward_pre_hook(self._enter_module),
            module.register_module_forward_hook(self._leave_module, always_call=True),
        ]
        return super().__enter__()

    def __exit__(self, *exception: Any) -> Any:
        for hook in self.hooks:
            hook.remove()
        return super().__exit__(*exception)

    def _enter_module(self, module: Any, args: Any) -> None:
        self.stack.append(self.paths.get(id(module), self.stack[-1] if self.stack else ""))

    def _leave_module(self, module: Any, args: Any, result: Any) -> None:
        if self.stack:
            self.stack.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        last = self.nodes._prev
        result = func(*args, **(kwargs or {}))
        node = self.nodes._prev
        if node is last:
            return result
        again = self.phase == "backward" and torch.is_grad_enabled()
        place = self.here() if again or self.phase == "forward" else self.place
        if self.phase == "forward":
            self.by_sequence[torch._C._autograd._get_sequence_nr() - 1] = place
        while node is not last:
            node.meta.update({PLACE: place, PHASE: self.phase, AGAIN: again})
            node = node._prev
        return result

    def here(self) -> str:
        """The module that runs, or the line of the user's function."""
        return (self.stack[-1] if self.stack else "") or _line()

    @contextmanager
    def backward(self, total: torch.Tensor) -> Iterator[None]:
        """While gradients of `total` are traced."""
        hooks = [node.register_prehook(self._entered(node)) for node in _functions(total)]
        self.phase, self.stack = "backward", []
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _entered(self, function: Any) -> Any:
        place = self.by_sequence.get(function._sequence_nr())

        def enter(gradients: Any) -> None:
            self.place = place or self.place

        return enter


def _functions(total: torch.Tensor) -> list[Any]:
    """The autograd functions that `total` comes from."""
    seen, left = set(), [total.grad_fn]
    while left:
        function = left.pop()
        if function is not None and function not in seen:
            seen.add(function)
            left += [before for before, _ in function.next_functions]
    return list(seen)


_OURS = tuple(f"{torch.__path__[0].rsplit('/', 1)[0]}/{name}/" for name in ("torch", "torus", "jax"))


def _line() -> str:
    """The innermost line that belongs neither to PyTorch nor to this package."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_OURS) and "/torus/twin/" not in name and not name.startswith("<"):
            return f"{name.rsplit('/', 1)[-1]}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def source(node: Any) -> Any:
    """What a node is, but for its part in autograd."""
    while node.target in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
        node = node.args[0]
    return node


def barrier(*arrays: Any) -> tuple[Any, ...]:
    """The same arrays, of which a compiler knows nothing."""
    from torus.backend.lowering.lazy import lax

    return tuple(lax.optimization_barrier(arrays))


def keep_recomputation(graph: torch.fx.Graph) -> None:
    """Put a barrier before each stretch of ops that a checkpoint does again, tied to the gradient that needs it.

    A compiler would else see that they are done already, and keep their results from the forward pass in memory.
    """
    gradient: Any = None
    stretch: list[Any] = []
    for node in [*graph.nodes]:
        if node.op != "call_function" or node.target is torch.ops.aten.detach.default:
            continue  # autograd detaches what it saves, in the midst of a stretch
        if node.meta.get(AGAIN):
            stretch.append(node)
            continue
        if stretch:
            _set_apart(graph, stretch, gradient)
            stretch = []
        if node.meta.get(PHASE) == "backward" and isinstance(node.meta.get("val"), torch.Tensor):
            gradient = node


def _set_apart(graph: torch.fx.Graph, stretch: Sequence[Any], gradient: Any) -> None:
    inside = set(stretch)
    used = dict.fromkeys(n for node in stretch for n in node.all_input_nodes if n not in inside)
    tensors = [n for n in used if isinstance(n.meta.get("val"), torch.Tensor)]
    outer = [n for n in tensors if source(n).op != "placeholder"] or tensors
    values = [*outer, gradient] if gradient is not None else outer
    with graph.inserting_before(stretch[0]):
        tied = graph.call_function(barrier, tuple(values))
        news = [graph.call_function(operator.getitem, (tied, i)) for i in range(len(outer))]
    tied.meta = {**stretch[0].meta, "val": [n.meta["val"] for n in values]}
    for old, new in zip(outer, news, strict=True):
        new.meta = {**stretch[0].meta, "val": old.meta["val"]}
        for node in stretch:
            node.replace_input_with(old, new)
