"""The Dynamo backend `"tpu"`: AOTAutograd makes functional graphs of ATen ops, each becomes one program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import torch
from torch._dynamo import trace_rules

from torus.backend.compile.nodes import find_rule
from torus.backend.compile.options import Options
from torus.backend.compile.region import Region

trace_rules.add("torus")  # Dynamo does not look into the device's own functions


def tpu(
    module: torch.fx.GraphModule,
    example_inputs: list[Any],
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """What `torch.compile(f, backend="tpu")` calls for each graph; see `Options`. Raises ValueError for a bad option."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    compile_graph = partial(_compile, options=Options.parse(mode, options))
    return aot_autograd(
        fw_compiler=compile_graph,
        bw_compiler=compile_graph,
        inference_compiler=compile_graph,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompositions(),
        keep_inference_input_mutations=True,
    )(module, example_inputs)


def _compile(module: torch.fx.GraphModule, example_inputs: list[Any], options: Options) -> Region:
    return Region(module, options)


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's own decompositions, for the ops that have no rule."""
    from torch._decomp import decomposition_table

    return {op: fn for op, fn in decomposition_table.items() if find_rule(op) is None}
