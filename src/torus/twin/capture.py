"""From a PyTorch module to a `Step`: traced without memory, lowered for a TPU that is not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import torch

from torus.backend.compile.graph import GraphFunction, Run
from torus.backend.device import numerics
from torus.backend.eager.build import PRECISIONS
from torus.backend.lowering.apply import Context, tracing
from torus.backend.lowering.dtypes import to_name
from torus.backend.lowering.lazy import jax
from torus.twin.notes import PLACE
from torus.twin.sharding import Plan, Sharding, Split
from torus.twin.step import Argument, Kind, Step
from torus.twin.trace import Traced, trace
from torus.twin.updates import Optimizer

_HELD = ("parameter", "state")
"""What gives way where it is split over the devices that split the batch."""

GENERATOR = Argument("generator", "constant", (4,), "uint32", ((),))
"""The state of random numbers: an argument of each step that draws some."""


def capture(
    fn: torch.nn.Module | Callable[..., Any],
    inputs: Sequence[Any] | Mapping[str, Any],
    *,
    step: Literal["forward", "train"] = "forward",
    loss: Callable[..., Any] | None = None,
    optimizer: Optimizer | None = None,
    mesh: Mapping[str, int] | None = None,
    sharding: Sharding = "data",
    split: Split | None = None,
    precision: str | None = None,
) -> Step:
    """One step of a model on a TPU, as StableHLO. Nothing of it needs memory: parameters and inputs may be on "meta".

    fn: a module, or a function of tensors. inputs: its arguments in order, or by name; of tensors only the sizes and
        dtypes count, which are those of all devices together.
    step: ``"forward"`` for inference; ``"train"`` for forward, backward and the optimizer's update as one program,
        which replaces parameters and state in place. Parameters that require no gradient are not trained.
    loss: ``loss(fn, *inputs)`` gives the number to make small, alone or first of several; by default what the model
        calls its loss, else the mean of its output. A forward step leaves out the inputs, in order, that only a given
        loss takes. optimizer: one over `fn`'s parameters, or what makes one from
        their list; AdamW by default.
    mesh: size of each axis of the device mesh. sharding: ``"data"``, ``"fsdp"`` or ``"tensor"``, or one for each axis;
        see `torus.twin.sharding`. split: the axes of each dimension of a parameter, from its name and sizes.
    precision: of float32 products, ``"default"``, ``"high"`` or ``"highest"``; else that of `torch.tpu.precision`.

    Raises CompileError, naming op and line, for what has no lowering, and ValueError for a training step of what has no
    parameter to train, or for a mesh that does not fit.
    """
    traced = trace(fn, inputs, step, loss, optimizer)
    return lower(traced, Plan(traced, dict(mesh or {}), sharding, split), precision)


def lower(traced: Traced, plan: Plan, precision: str | None = None) -> Step:
    """A traced step as StableHLO, with its arguments split as planned."""
    donated = {r.replaces for r in traced.results}
    arguments = [
        Argument(v.name, cast(Kind, v.kind), v.shape, to_name(v.dtype), spec, i in donated)
        for i, (v, spec) in enumerate(zip(traced.arguments, plan.arguments, strict=True))
    ]
    names = [(r.name, cast(Kind, r.kind)) for r in traced.results]
    return lower_graph(traced.name, traced.module, arguments, names, plan, precision)


def lower_graph(
    name: str,
    module: torch.fx.GraphModule,
    arguments: Sequence[Argument],
    results: Sequence[tuple[str, Kind]],
    plan: Plan,
    precision: str | None = None,
) -> Step:
    """A graph whose placeholders are `arguments`, as a step."""
    from torus.runtime import lowering

    function, mesh = _Placed(module, plan), dict(plan.mesh)
    arguments = [*arguments, GENERATOR] if function.draws else list(arguments)

    def run(*arrays: Any) -> list[Any]:
        return function(*arrays[:-1], generator=arrays[-1]) if function.draws else function(*arrays)

    said = precision or PRECISIONS[int(numerics.get_precision())]
    with tracing(Context(said, "tpu")):
        text, outs, places = lowering.lower_sharded(
            run,
            [(a.shape, a.dtype) for a in arguments],
            platform="tpu",
            mesh=mesh,
            specs=[a.spec for a in arguments],
            result_specs=plan.results,
            donated=[a.donated for a in arguments],
            later=([a.kind in _HELD for a in arguments], [kind in _HELD for _, kind in results]),
        )
    found = tuple(
        Argument(n, kind, shape, dtype, spec or ((),) * len(shape))
        for (n, kind), (shape, dtype), spec in zip(results, outs, plan.results, strict=True)
    )
    return Step(name, text, tuple(arguments), found, mesh, tuple(places))


class _Placed(GraphFunction):
    """A graph whose ops are lowered in the scope of the place that they come from.

    Activations stay split by the batch: else the split of parameters would spread to them.
    """

    def __init__(self, module: torch.fx.GraphModule, plan: Plan) -> None:
        super().__init__(module)
        self.plan = plan

    def __call__(self, *arguments: Any, generator: Any = None) -> list[Any]:
        return _PlacedRun(self, generator).run(arguments)


class _PlacedRun(Run):
    function: _Placed

    def node(self, node: Any) -> Any:
        from torus.runtime import lowering

        with jax.named_scope(node.meta.get(PLACE) or "step"):
            result = super().node(node)
            plan = self.function.plan
            if node.target in _VIEWS and len(result.shape) > 2 and plan.keeps_split(tuple(result.shape)):
                return lowering.split_first(result, plan.mesh, plan.batch_axes)
            return result


_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
"""What follows each product of a batch with a parameter."""
