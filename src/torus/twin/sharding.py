"""How the arguments of a step are split over a device mesh.

Each axis of the mesh has a role:

- ``"data"``: the batch is split, all else is whole.
- ``"fsdp"``: the batch is split, and so are parameters and their state, on the largest dimension that divides.
- ``"tensor"``: linear layers are split as in Shoeybi et al., "Megatron-LM" (2019): one that reads the residual stream
  on its output features ("column"), the next one that reads its results on its input features ("row"), tables of
  embeddings on their rows. Which layer reads which is found in the graph, not by names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Literal

import torch

from torus.twin.notes import PHASE
from torus.twin.step import Spec
from torus.twin.trace import Traced
from torus.twin.values import Value

Role = Literal["data", "fsdp", "tensor"]
Sharding = Role | Mapping[str, Role]
"""The role of the mesh, or of each axis by name. Axes called as in `_NAMED` keep their role under a single word."""
Split = Callable[[str, tuple[int, ...]], "Spec | None"]
"""From a parameter's name and sizes to the axes of each dimension; None leaves it to the roles."""

_ROLES = ("data", "fsdp", "tensor")
_NAMED: dict[str, Role] = {"fsdp": "fsdp", "model": "tensor", "tensor": "tensor", "tp": "tensor"}
_NARROW = 128
"""Features of an adapter (LoRA), which no axis splits."""

aten = torch.ops.aten
_PRODUCTS = {aten.mm.default: (0, 1), aten.addmm.default: (1, 2), aten.linear.default: (0, 1), aten.bmm.default: (0, 1)}
_MOVED = ("t", "detach", "_to_copy", "transpose", "permute", "view", "_unsafe_view", "expand", "alias", "unsqueeze")
_NORMS = ("native_layer_norm", "_fused_rms_norm", "rsqrt", "native_group_norm", "_native_batch_norm_legit", "embedding")


def roles(mesh: Mapping[str, int], sharding: Sharding) -> dict[str, Role]:
    """The role of each axis. Raises ValueError for a role or an axis that there is not."""
    if isinstance(sharding, str):
        named = {axis: _NAMED[axis] for axis in mesh if axis in _NAMED and (len(mesh) > 1 or sharding == "data")}
        rest: Role = "data" if sharding == "tensor" and "tensor" in named.values() else sharding
        found = {axis: named.get(axis, rest) for axis in mesh}
    else:
        found = {axis: sharding.get(axis, "data") for axis in mesh}
        if strange := set(sharding) - set(mesh):
            raise ValueError(f"the mesh has no axis {', '.join(sorted(strange))}; it has {', '.join(mesh)}")
    if bad := set(found.values()) - set(_ROLES):
        raise ValueError(f"there is no sharding {', '.join(sorted(bad))}; there are {', '.join(_ROLES)}")
    return found


class Plan:
    """How a traced step is split over a mesh: `arguments` and `results` have their specs."""

    def __init__(self, traced: Traced, mesh: Mapping[str, int], sharding: Sharding, split: Split | None = None) -> None:
        self.traced, self.mesh = traced, mesh
        known = roles(mesh, sharding)
        self.batch_axes = tuple(axis for axis, role in known.items() if role in ("data", "fsdp"))
        self.fsdp = tuple(axis for axis, role in known.items() if role == "fsdp")
        self.tensor = tuple(axis for axis, role in known.items() if role == "tensor")
        self.features = _features(traced) if self.tensor else {}
        self.batch = next((v.shape[0] for v in traced.arguments if v.kind == "input" and v.shape), None)
        of = {v.name: self._parameter(v, split) for v in traced.arguments if v.kind == "parameter"}
        shapes = {v.name: v.shape for v in traced.arguments}
        self.arguments = [
            of.get(v.name) or (of[v.of] if v.of and shapes[v.of] == v.shape else self.activation(v))
            for v in traced.arguments
        ]
        self.results: list[Spec | None] = [
            self.arguments[r.replaces] if r.replaces is not None else self._result(r) for r in traced.results
        ]

    def activation(self, value: Value) -> Spec:
        """What is no parameter is split on its first dimension, if that is the batch."""
        if value.kind == "input" and self.is_batched(value.shape):
            return (self.batch_axes, *((),) * (len(value.shape) - 1))
        return ((),) * len(value.shape)

    def is_batched(self, shape: tuple[int, ...]) -> bool:
        """Whether the first dimension is the batch, and splits evenly."""
        return bool(self.batch_axes) and shape[:1] == (self.batch,) and self._divides(shape[0], self.batch_axes)

    def keeps_split(self, shape: tuple[int, ...]) -> bool:
        """Whether an activation needs to be told that it is split as the batch is, since parameters are split too."""
        return bool(self.fsdp or self.tensor) and self.is_batched(shape)

    def _result(self, value: Value) -> Spec | None:
        return self.activation(value) if self.is_batched(value.shape) else None

    def _divides(self, size: int, axes: tuple[str, ...]) -> bool:
        return size % prod(self.mesh[a] for a in axes) == 0

    def _parameter(self, value: Value, split: Split | None) -> Spec:
        said = split(value.name, value.shape) if split is not None else None
        if said is not None:
            return said
        spec: list[tuple[str, ...]] = [()] * len(value.shape)
        feature = self.features.get(value.name)
        if feature is not None and self._divides(value.shape[feature], self.tensor):
            spec[feature] = self.tensor
        free = [d for d, size in enumerate(value.shape) if not spec[d] and self._divides(size, self.fsdp)]
        if self.fsdp and free:
            spec[max(free, key=lambda d: value.shape[d])] = self.fsdp
        return tuple(spec)


def _features(traced: Traced) -> dict[str, int]:
    """The dimension on which a tensor axis splits a parameter."""
    names = _parameters(traced)
    kinds: dict[Any, str] = {}
    found: dict[str, int] = {}
    for node in traced.module.graph.nodes:
        if node.meta.get(PHASE) != "forward" or node.op != "call_function":
            continue
        if node.target is aten.embedding.default:
            if (name := names.get(node.args[0])) is not None:
                found.setdefault(name, 0)
        elif node.target in _PRODUCTS:
            x, weight = (node.args[i] for i in _PRODUCTS[node.target])
            name, flipped = _through(weight, names)
            if name is None or min(weight.meta["val"].shape[-2:]) < _NARROW:
                continue
            column = "column" not in _readers(x, kinds)
            kinds[node] = "column" if column else "row"
            rank = weight.meta["val"].dim()
            found.setdefault(name, (0 if flipped else 1) if column else (1 if flipped else 0)) if rank == 2 else None
            bias = names.get(node.args[0]) if node.target is aten.addmm.default else None
            if bias is not None and column:
                found.setdefault(bias, 0)
    return found


def _parameters(traced: Traced) -> dict[Any, str]:
    """Nodes that are a parameter as it is, with its name."""
    places = [n for n in traced.module.graph.nodes if n.op == "placeholder"]
    found = {n: v.name for n, v in zip(places, traced.arguments) if v.kind == "parameter"}
    for node in traced.module.graph.nodes:
        if node.target in (aten.detach.default, aten._to_copy.default) and node.args[0] in found:
            found[node] = found[node.args[0]]
    return found


def _through(node: Any, names: Mapping[Any, str]) -> tuple[str | None, bool]:
    """The parameter that a product's right operand is, and whether it is transposed."""
    flipped = False
    while node not in names:
        if not _is(node, _MOVED):
            return None, False
        flipped ^= _is(node, ("t", "transpose", "permute"))
        node = node.args[0]
    return names[node], flipped


def _is(node: Any, names: tuple[str, ...]) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._opname in names


def _readers(node: Any, kinds: Mapping[Any, str]) -> set[str]:
    """The kinds of the nearest products that a value comes from, with no norm or embedding in between."""
    found, seen, left = set(), set(), [node]
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in kinds:
            found.add(kinds[node])
        elif not _normed(node):
            left += node.all_input_nodes
    return found


def _normed(node: Any) -> bool:
    """Whether a value is normalised: by one op, or by a factor that is a reciprocal root."""
    return _is(node, _NORMS) or any(_is(n, ("rsqrt",)) for n in node.all_input_nodes)
