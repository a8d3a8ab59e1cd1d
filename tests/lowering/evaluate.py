"""Run a rule by itself, without the device: the quickest way to test what a rule computes against CPU PyTorch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np
import torch
from torch.utils import _pytree as pytree

from tests.lowering import for_tpu
from torus.backend.lowering.apply import Context, Operand, apply, tracing
from torus.backend.lowering.dtypes import to_name
from torus.backend.lowering.registry import RULES, OutSpec


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The values of a CPU tensor, extended dtypes included."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    name = to_name(tensor.dtype)
    if hasattr(ml_dtypes, name):
        bits = tensor.view({1: torch.uint8, 2: torch.int16}[tensor.dtype.itemsize])
        return bits.numpy().view(getattr(ml_dtypes, name))
    return tensor.numpy()


def to_torch(array: Any) -> torch.Tensor:
    """The inverse of `to_numpy`."""
    array = np.array(array)
    from torus.backend.lowering.dtypes import from_name

    dtype = from_name(str(array.dtype))
    if hasattr(ml_dtypes, str(array.dtype)):
        bits = torch.from_numpy(array.view({1: np.uint8, 2: np.int16}[array.dtype.itemsize]))
        return bits.view(dtype)
    return torch.from_numpy(array)


def _operand(value: Any, wide: bool) -> Operand:
    if isinstance(value, torch.Tensor):
        return Operand(to_numpy(value), 2 if value.dim() else 1)
    kind = {
        bool: "bool",
        int: "int64",
        float: "float64" if wide else "float32",
        complex: "complex128" if wide else "complex64",
    }
    return Operand(np.asarray(value, kind[type(value)]), 0)


def evaluate(op: Any, *args: Any, seed: tuple[int, int, int, int] = (1, 0, 0, 0), **kwargs: Any) -> Any:
    """What the rule for `op` (an OpOverload) gives for CPU arguments; a tensor, or a list of them.

    Scalars are traced as on the device: 32-bit unless a 64-bit float tensor takes part or the rule is wide.
    """
    rule = RULES[op._schema.name + ("." + op._schema.overload_name if op._schema.overload_name else "")]
    tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    wide = rule.wide or any(t.dtype in (torch.float64, torch.complex128) for t in tensors)
    meta = lambda x: x.detach().to("meta") if isinstance(x, torch.Tensor) else x  # noqa: E731
    margs, mkwargs = pytree.tree_map(meta, (args, kwargs))
    if "device" in {a.name for a in op._schema.arguments}:
        mkwargs["device"] = "meta"
    try:
        promised = [t for t in pytree.tree_leaves(op(*margs, **mkwargs)) if not isinstance(t, int)]
    except NotImplementedError:
        promised = []  # PyTorch has no meta kernel: the rule decides
    outs = [OutSpec((), "float32") if t is None else OutSpec(tuple(t.shape), to_name(t.dtype)) for t in promised]

    bound = dict(zip([a.name for a in op._schema.arguments], args)) | kwargs
    traced: list[Any] = []
    build: list[tuple[str, Callable[[list[Any]], Any]]] = []

    def slot(operand: Operand) -> Callable[[list[Any]], Any]:
        traced.append(operand.array)
        index, category = len(traced) - 1, operand.category
        return lambda arrays: Operand(arrays[index], category)

    for argument in op._schema.arguments:
        if argument.name not in bound:
            if not argument.has_default_value():
                continue
            bound[argument.name] = argument.default_value
        value, kind = bound[argument.name], str(argument.type)
        number = isinstance(value, (bool, int, float, complex)) and (
            kind in ("number", "float", "Optional[number]", "Optional[float]", "Scalar", "Optional[Scalar]")
        )
        if argument.name == "generator":
            make = slot(Operand(np.array(seed, np.uint32), 2))
        elif (
            isinstance(value, torch.Tensor)
            or (number and argument.name not in rule.static)
            or (argument.name in rule.runtime and value is not None)
        ):
            make = slot(_operand(value, wide))
        elif isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
            parts = [slot(_operand(v, wide)) if v is not None else (lambda arrays: None) for v in value]
            make = lambda arrays, parts=parts: [p(arrays) for p in parts]  # noqa: E731
        elif kind in ("List[number]", "List[Scalar]") and argument.name not in rule.static:
            parts = [slot(_operand(v, wide)) for v in value]
            make = lambda arrays, parts=parts: [p(arrays) for p in parts]  # noqa: E731
        else:
            make = lambda arrays, value=value: value  # noqa: E731
        build.append((argument.name, make))

    keyword = {a.name for a in op._schema.arguments if a.kwarg_only} | {"generator"}
    if "generator" in inspect.signature(rule.fn).parameters and "generator" not in {n for n, _ in build}:
        build.append(("generator", slot(Operand(np.array(seed, np.uint32), 2))))

    def program(arrays: Sequence[Any], platform: str = "cpu") -> list[Any]:
        with tracing(Context(platform=platform)):
            positional = [make(arrays) for name, make in build if name not in keyword]
            named = {name: make(arrays) for name, make in build if name in keyword}
            return apply(rule, positional, named, outs)

    if for_tpu.WANTED:
        for_tpu.compile(rule.name, lambda *arrays: [r for r in program(arrays, "tpu") if r is not None], traced)
    with jax.enable_x64(True):
        results = [to_torch(r) if r is not None else None for r in jax.jit(program)(traced)]
    return results[0] if len(results) == 1 else results
