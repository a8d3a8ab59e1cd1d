"""`with torch.tpu.precision(p):` in a compiled function: a note on each node of the block, which its lowering reads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch._dynamo.exc import unimplemented
from torch._dynamo.guards import GuardBuilder
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import VariableBuilder
from torch._dynamo.variables.ctx_manager import FxTracebackAnnotateVariable

from torus.backend.device.numerics import as_precision, precision

_NOTE = "torus.precision"
_ENTERS = ("BEFORE_WITH", "COPY")
"""What follows the call in a with statement, as the versions of Python have it."""


def noted(node: Any) -> str | None:
    """The precision that the user's function says for a node, in lower case; None where it says nothing.

    Nodes of the backward pass have the note of what they are gradients of: eager mode has left the block by then.
    """
    if node.meta.get("autograd_backward") or node.meta.get("partitioner_tag") == "is_backward":
        return None
    note: str | None = (node.meta.get("custom") or {}).get(_NOTE)
    return note


def op_by_op(module: torch.fx.GraphModule) -> Callable[..., Any]:
    """The graph as a function that runs each op by itself, in its precision."""
    return _OpByOp(module).run if any(map(noted, module.graph.nodes)) else module


class _OpByOp(torch.fx.Interpreter):
    def run_node(self, n: torch.fx.Node) -> Any:
        said = noted(n)
        with precision(said) if said else nullcontext():
            return super().run_node(n)


class _PrecisionVariable(VariableTracker):
    """The class `precision` as Dynamo sees it."""

    def call_function(self, tx: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The block's notes. What is not a block outlives the graph: Dynamo breaks the graph for it."""
        if tx.next_instruction.opname not in _ENTERS:
            unimplemented(
                gb_type="torch.tpu.precision outside of a with statement",
                context="",
                explanation="It sets the precision for the whole process, which a graph cannot do.",
                hints=["Write `with torch.tpu.precision(p):`, or set it before the compiled function."],
            )
        value = as_precision(next(iter([*args, *kwargs.values()])).as_python_constant())
        return FxTracebackAnnotateVariable({_NOTE: value.name.lower()})


def install() -> None:
    """Make Dynamo see `precision` so."""

    def build(builder: Any, value: Any) -> VariableTracker:
        return _PrecisionVariable(source=builder.source, **builder.install_guards(GuardBuilder.CLASS_MATCH))

    VariableBuilder._id_dispatch()[id(precision)] = build
