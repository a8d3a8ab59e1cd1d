"""The Dynamo backend `"tpu"`: AOTAutograd makes functional graphs of ATen ops, each becomes one program."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import torch
from torch._dynamo import trace_rules
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config

from torus.backend.compile import flex_attention, precision, pytorch
from torus.backend.compile.backward import Backward
from torus.backend.compile.errors import CompileError, CompileWarning
from torus.backend.compile.nodes import find_rule
from torus.backend.compile.options import Options
from torus.backend.compile.region import Region

for _package in ("torus.backend", "torus.runtime", "torus.settings"):
    trace_rules.add(_package)  # Dynamo does not look into the device's own functions; the rest may be compiled
pytorch.install()
precision.install()
flex_attention.accept_device()


def tpu(
    module: torch.fx.GraphModule,
    example_inputs: list[Any],
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """What `torch.compile(f, backend="tpu")` calls for each graph. Raises ValueError for a bad option of `Options`."""
    return compile_graph(module, example_inputs, Options.parse(mode, options))


def compile_graph(module: torch.fx.GraphModule, example_inputs: list[Any], options: Options) -> Callable[..., Any]:
    """A graph as a function whose forward and backward are programs of the device."""
    from torch._dynamo.backends.common import aot_autograd

    make = partial(_compile, options=options)
    make_forward = partial(_compile_forward, options=options)
    compiler = aot_autograd(
        fw_compiler=make_forward,
        bw_compiler=partial(_compile_backward, options=options),
        inference_compiler=make,
        partition_fn=_partition,
        decompositions=decompositions(_is_dynamic(example_inputs)),
        keep_inference_input_mutations=True,
    )
    # A draw that nobody uses stays, since it moves the generator. What a checkpoint computes again for a backward pass
    # in the same graph XLA would merge again; and PyTorch's pass that repeats it refuses draws, backward pass or not.
    with (
        inductor_config.patch(fallback_random=True),
        functorch_config.patch(remat_using_tags_for_fwd_loss_bwd_graph=False),
    ):
        compiled: Callable[..., Any] = compiler(module, example_inputs)
    return compiled


def _compile(
    module: torch.fx.GraphModule, example_inputs: list[Any], options: Options, seen: int | None = None
) -> Callable[..., Any]:
    from torch._functorch._aot_autograd.utils import make_boxed_func

    try:
        return Region(module, options, seen)
    except CompileError as error:
        if not options.falls_back:
            raise
        warnings.warn(f"a graph runs op by op, because it cannot be compiled: {error}", CompileWarning, stacklevel=2)
        return make_boxed_func(precision.op_by_op(module))


def _compile_forward(module: torch.fx.GraphModule, example_inputs: list[Any], options: Options) -> Callable[..., Any]:
    """A forward graph gives what the user sees, then what its backward graph needs."""
    context = torch._guards.TracingContext.try_get()
    known = context.fw_metadata if context is not None else None
    return _compile(module, example_inputs, options, known.num_forward_returns if known is not None else None)


def _compile_backward(module: torch.fx.GraphModule, example_inputs: list[Any], options: Options) -> Backward:
    return Backward(module, lambda graph: _compile(graph, example_inputs, options))


def _partition(joint: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    """A forward and a backward graph. Random numbers of a checkpoint are saved: drawn anew, they would be others."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch.utils.checkpoint import CheckpointPolicy

    for node in joint.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            picked = [user for user in node.users if user.target is operator.getitem]
            for saved in filter(lambda n: "recompute" in n.meta, [node, *picked]):
                saved.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return min_cut_rematerialization_partition(joint, *args, **kwargs)


def _is_dynamic(example_inputs: list[Any]) -> bool:
    sizes = [s for x in example_inputs for s in (x.shape if isinstance(x, torch.Tensor) else [x])]
    return any(isinstance(s, torch.SymInt) for s in sizes)


@cache
def decompositions(dynamic: bool = False) -> dict[Any, Callable[..., Any]]:
    """PyTorch's own decompositions: for the ops that have no rule, or, for dynamic sizes, into a few kinds of ops."""
    from torch._decomp import core_aten_decompositions, decomposition_table

    from torus.backend.compile.decompositions import ALWAYS, FOR_PADDING

    table = {op: fn for op, fn in decomposition_table.items() if find_rule(op) is None} | ALWAYS
    if dynamic:
        names = [f"aten::{name}" for name in _ALSO_DECOMPOSED]
        table |= {op: fn for op, fn in core_aten_decompositions().items() if op not in _KEPT} | FOR_PADDING
        table |= {op: fn for op, fn in decomposition_table.items() if op.name() in names}
    return table


_ALSO_DECOMPOSED = (
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit.no_stats",
    "native_batch_norm_backward",
    "native_group_norm",
    "native_group_norm_backward",
)
_KEPT = {torch.ops.aten._softmax.default, torch.ops.aten._log_softmax.default}
