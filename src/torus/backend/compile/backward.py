"""A backward graph: one program for all gradients, and programs for the few that a caller asks for.

AOTAutograd's graph gives the gradient of every input that has one. `torch.autograd.grad(y, x)` of a compiled model
wants none of its parameters, which are half of the work, and autograd throws them away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

_MOST_PARTS = 2
"""Choices of gradients that have programs of their own; more than these would be compiled again and again."""

Boxed = Callable[[list[Any]], Any]


class Backward:
    """A backward graph as AOTAutograd calls it."""

    def __init__(self, module: torch.fx.GraphModule, make: Callable[[torch.fx.GraphModule], Boxed]) -> None:
        """`make` gives what runs a graph, and compiles nothing before its first call."""
        self._boxed_call = True
        self._module, self._make = module, make
        self._given = [gradient is not None for gradient in _outputs(module.graph)]
        self._whole, self._whole_has_run = make(module), False
        self._parts: dict[tuple[bool, ...], Boxed] = {}
        self._asked: Counter[tuple[bool, ...]] = Counter()

    def __call__(self, args: list[Any]) -> Any:
        return self._choose(wanted_gradients(self._given))(args)

    def _choose(self, wanted: tuple[bool, ...] | None) -> Boxed:
        """What computes the `wanted` gradients. Where there is a program for all already, it serves the first time."""
        if wanted is not None and wanted not in self._parts and len(self._parts) < _MOST_PARTS:
            self._asked[wanted] += 1
            if not self._whole_has_run or self._asked[wanted] > 1:
                self._parts[wanted] = self._make(_only(self._module, wanted))
        if wanted is None or wanted not in self._parts:
            self._whole_has_run = True
            return self._whole
        return self._parts[wanted]


def wanted_gradients(given: Sequence[bool]) -> tuple[bool, ...] | None:
    """Which outputs of the backward graph that this thread runs the autograd engine uses; None: all that are `given`.

    given: whether each output is a gradient.
    """
    node: Any = torch._C._current_autograd_node()
    edges = [] if node is None else [following for following, _ in node.next_functions]
    if len(edges) != len(given):  # arguments that are numbers have an output, always None, and no edge
        edges = [edge for edge in edges if edge is not None]
        if len(edges) != sum(given):
            return None
        left = iter(edges)
        edges = [next(left) if is_given else None for is_given in given]
    if any(is_given and edge is None for is_given, edge in zip(given, edges, strict=True)):
        return None
    wanted = tuple(is_given and _is_used(edge) for is_given, edge in zip(given, edges, strict=True))
    return None if wanted == tuple(given) or not any(wanted) else wanted


def _is_used(edge: Any) -> bool:
    try:
        return bool(torch._C._will_engine_execute_node(edge))
    except RuntimeError:  # PyTorch's answer for a leaf whose gradient torch.autograd.grad was asked for
        return True


def _outputs(graph: torch.fx.Graph) -> Sequence[Any]:
    found: Sequence[Any] = graph.output_node().args[0]  # type: ignore[assignment]
    return found


def _only(module: torch.fx.GraphModule, wanted: Sequence[bool]) -> torch.fx.GraphModule:
    """The graph with None for the outputs that are not wanted, and without what only they need."""
    graph = torch.fx.Graph()
    outputs: Any = graph.graph_copy(module.graph, {})
    graph.output(tuple(output if keep else None for output, keep in zip(outputs, wanted, strict=True)))
    graph.eliminate_dead_code()
    return torch.fx.GraphModule(module, graph)
