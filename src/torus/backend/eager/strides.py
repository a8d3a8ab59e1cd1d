"""Strides of elementwise results as the CPU's kernels give them.

PyTorch's Python meta kernels promise others where the order of dimensions is not plain (they count the strides of a
size of 1 that is broadcast), and for half precisions, which they convert to float32 first, to dense tensors.
"""

from __future__ import annotations

from typing import Any

import torch

from torus import _C
from torus.backend.eager.request import Request, ScalarArg
from torus.backend.lowering.registry import Rule

_CONVERT_THEMSELVES = ("aten::sub.Tensor", "aten::rsub.Tensor")
"""Elementwise ops whose rules do not say so: they look at dtypes before anything is converted."""

_REVERSED = ("aten::rsub.Tensor",)
"""Ops whose kernels read their operands in the other order."""

_NUMBERS: dict[str, Any] = {"bool": True, "int": 1, "float": 1.0, "complex": 1j}


def as_on_cpu(request: Request, rule: Rule, promises: list[Any] | None) -> list[Any] | None:
    """`promises` with the strides that the CPU gives, where the rule is that of an elementwise op."""
    elementwise = rule.promote is not None or rule.name in _CONVERT_THEMSELVES
    if not elementwise or not promises or not all(isinstance(promise, tuple) for promise in promises):
        return promises
    operands = [found for _, _, encoded in request.args if (found := _operand(request, encoded)) is not None]
    tensors = [x for x in operands if isinstance(x, torch.Tensor)]
    if rule.name in _REVERSED:
        tensors.reverse()
    if not _is_broadcast([tuple(promise[1]) for promise in promises], tensors):
        return promises
    dtype = torch.result_type(*operands[:2]) if rule.promote == "common" else promises[0][0]
    read = [x if x.dtype == dtype else torch.empty_like(x, dtype=dtype) for x in tensors]
    strides = tuple(_C.elementwise_strides(read))
    return [(dtype, sizes, strides) for dtype, sizes, _ in promises]


def _operand(request: Request, encoded: tuple[str, Any]) -> Any:
    """A tensor without data, or a number of the right kind."""
    kind, value = encoded
    if kind == "tensor":
        tensor = request.tensors[value]
        return torch.empty_strided(tensor.sizes, tensor.strides, dtype=tensor.dtype, device="meta")
    if kind == "scalar":
        return _number(request.scalars[value])
    return value[1] if kind == "usual" else None


def _number(scalar: ScalarArg) -> Any:
    number = _NUMBERS[scalar.kind]
    return number if scalar.dtype is None else torch.empty((), dtype=scalar.dtype, device="meta")


def _is_broadcast(results: list[tuple[int, ...]], operands: list[torch.Tensor]) -> bool:
    """Whether the results have the sizes that the operands have together."""
    try:
        together = tuple(torch.broadcast_shapes(*(x.shape for x in operands)))
    except RuntimeError:
        return False
    return bool(operands) and all(sizes == together for sizes in results)
