"""What a step is made of, so that a question "and with ...?" is a change of one thing."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal

import torch
from torch.utils import _pytree as pytree

from torus.twin.sharding import Plan, Sharding, Split
from torus.twin.step import Step
from torus.twin.topology import Topology
from torus.twin.trace import Optimizer, Traced, trace

Inputs = Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """A model, its inputs and how they run; the arguments of `torus.twin.capture.capture`."""

    fn: torch.nn.Module | Callable[..., Any]
    inputs: Inputs
    step: Literal["forward", "train"] = "forward"
    loss: Callable[..., Any] | None = None
    optimizer: Optimizer | None = None
    mesh: dict[str, int] = field(default_factory=dict)
    sharding: Sharding = "data"
    split: Split | None = None
    precision: str | None = None
    name: str = ""

    @functools.cached_property
    def traced(self) -> Traced:
        return trace(self.fn, self.inputs, self.step, self.loss, self.optimizer)

    @functools.cached_property
    def _lowered(self) -> dict[Any, Step]:
        """Programs by how their arguments are split: sizes of the mesh are no part of them."""
        return {}

    def capture(self) -> Step:
        """The step over this mesh. Raises as `torus.twin.capture.capture` does."""
        from torus.twin.capture import lower

        split = Plan(self.traced, self.mesh, self.sharding, self.split)
        key = (tuple(self.mesh), tuple(split.arguments), tuple(split.results))
        if key not in self._lowered:
            self._lowered[key] = lower(self.traced, split, self.precision)
        step = self._lowered[key]
        return replace(step if step.mesh == self.mesh else step.resized(self.mesh), name=self.name or step.name)

    def over(self, mesh: Mapping[str, int], sharding: Sharding | None = None) -> Case:
        """The same step over another mesh; it is not traced again."""
        other = replace(self, mesh=dict(mesh), sharding=self.sharding if sharding is None else sharding)
        other.__dict__.update(traced=self.traced, _lowered=self._lowered)
        return other

    @property
    def has_values(self) -> bool:
        """Whether parameters and inputs have memory, so that the model can run."""
        held = list(self.fn.parameters()) if isinstance(self.fn, torch.nn.Module) else []
        return not any(t.is_meta for t in (*held, *_tensors(self.inputs)))

    # The batch

    @property
    def batch(self) -> int | None:
        """The first size of the first input; None where there is none."""
        return next((t.shape[0] for t in _tensors(self.inputs) if t.ndim), None)

    def with_batch(self, batch: int) -> Case:
        """Every input whose first size is the batch's, without memory, with so many rows."""
        old = self.batch

        def resized(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor) or not leaf.ndim or leaf.shape[0] != old:
                return leaf
            return torch.empty((batch, *leaf.shape[1:]), dtype=leaf.dtype, device="meta")

        return replace(self, inputs=pytree.tree_map(resized, self.inputs))

    # Changes of the model, which leave the user's own as it is

    def in_bfloat16(self) -> Case | None:
        """Parameters and inputs of bfloat16; None where nothing is wider."""

        def narrowed(leaf: Any) -> Any:
            wide = isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.float32, torch.float64)
            return torch.empty_like(leaf, dtype=torch.bfloat16, device="meta") if wide else leaf

        if not isinstance(self.fn, torch.nn.Module) or all(t.itemsize < 4 for t in self.fn.parameters()):
            return None
        model = weightless(self.fn).to(torch.bfloat16)
        return replace(self._about(model), inputs=pytree.tree_map(narrowed, self.inputs))

    def rematerialised(self) -> Case | None:
        """Activations of repeated blocks are not kept for the backward pass but computed again in it."""
        if self.step != "train" or not isinstance(self.fn, torch.nn.Module):
            return None
        model = weightless(self.fn)
        blocks = repeated_blocks(model)
        for block in blocks:
            block.forward = functools.partial(_checkpointed, block.forward)
        return self._about(model) if blocks else None

    def keeping_logits(self, count: int = 1) -> Case | None:
        """Of a language model: scores of the last positions only; None for a model that cannot, or a training step."""
        known = inspect.signature(getattr(self.fn, "forward", self.fn)).parameters
        if self.step == "train" or "logits_to_keep" not in known:
            return None
        named = dict(self.inputs) if isinstance(self.inputs, Mapping) else dict(zip(known, self.inputs))
        if named.get("logits_to_keep"):
            return None
        return replace(self, inputs={**named, "logits_to_keep": count})

    def _about(self, model: torch.nn.Module) -> Case:
        optimizer = self.optimizer
        if isinstance(optimizer, torch.optim.Optimizer):
            optimizer = functools.partial(type(optimizer), **optimizer.defaults)
        return replace(self, fn=model, optimizer=optimizer)


def _tensors(inputs: Inputs) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves(dict(inputs) if isinstance(inputs, Mapping) else list(inputs))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def weightless(model: torch.nn.Module) -> torch.nn.Module:
    """A copy of a module whose parameters and buffers have sizes but no memory; what was shared still is."""
    memo: dict[int, Any] = {id(b): torch.empty_like(b, device="meta") for b in model.buffers()}
    for parameter in model.parameters():
        empty = torch.empty_like(parameter, device="meta")
        memo[id(parameter)] = torch.nn.Parameter(empty, requires_grad=parameter.requires_grad)
    return copy.deepcopy(model, memo)


def repeated_blocks(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The outermost modules of which a list of the model has at least two of a kind: the layers of a transformer."""
    kinds = (torch.nn.ModuleList, torch.nn.Sequential)
    for module in model.modules():
        children = [child for child in module.children() if isinstance(module, kinds)]
        blocks = [child for child in children if sum(type(other) is type(child) for other in children) > 1]
        blocks = [block for block in blocks if any(True for _ in block.children())]
        if blocks:
            return blocks
    return []


def _checkpointed(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    from torch.utils.checkpoint import checkpoint

    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, determinism_check="none", **kwargs)


def mesh_for(topology: Topology, like: Mapping[str, int]) -> dict[str, int] | None:
    """A mesh with the axes of `like` over another topology: the first grows or shrinks; None where that cannot be."""
    if not like:
        return {"data": topology.devices} if topology.devices > 1 else {}
    first, *others = like
    rest = prod(like[axis] for axis in others)
    if topology.devices % rest:
        return None
    return {first: topology.devices // rest, **{axis: like[axis] for axis in others}}
