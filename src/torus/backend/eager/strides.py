"""Strides of elementwise results of half-precision tensors.

PyTorch's Python meta kernels convert them to float32 first, to dense tensors, and so promise other strides than the
CPU's kernels give, which convert element by element. (Both make dense tensors where dtypes are mixed.)
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch

from torus.backend.eager.request import Request
from torus.backend.lowering.registry import Rule

_HALF = (torch.bfloat16, torch.float16)
_NUMBERS: dict[str, Any] = {"bool": True, "int": 1, "float": 1.0, "complex": 1j}


def without_conversion(request: Request, rule: Rule, promises: list[Any] | None) -> list[Any] | None:
    """`promises` with the strides that the results have when nothing need be converted to compute in float32."""
    dtypes = [tensor.dtype for tensor in request.tensors]
    if rule.promote is None or not promises or not any(dtype in _HALF for dtype in dtypes):
        return promises
    if not all(isinstance(promise, tuple) for promise in promises):
        return promises
    computed = promises[0][0] if rule.promote == "result" else reduce(torch.promote_types, dtypes)
    if computed not in _HALF:
        return promises
    try:
        results = _results(request, rule, computed)
    except Exception:  # this op cannot take float32: the promise stands
        return promises
    if len(results) != len(promises) or any(tuple(r.shape) != tuple(p[1]) for r, p in zip(results, promises)):
        return promises
    return [(dtype, sizes, tuple(r.stride())) for r, (dtype, sizes, _) in zip(results, promises)]


def _results(request: Request, rule: Rule, half: torch.dtype) -> list[torch.Tensor]:
    """What the op's meta kernel gives for float32 in the place of `half`."""

    def argument(encoded: tuple[str, Any]) -> Any:
        kind, value = encoded
        if kind == "tensor":
            tensor = request.tensors[value]
            dtype = torch.float32 if tensor.dtype == half else tensor.dtype
            return torch.empty_strided(tensor.sizes, tensor.strides, dtype=dtype, device="meta")
        return _NUMBERS[request.scalars[value].kind] if kind == "scalar" else value

    positional = [argument(encoded) for _, keyword, encoded in request.args if not keyword]
    named = {name: argument(encoded) for name, keyword, encoded in request.args if keyword}
    namespace, _, rest = rule.name.partition("::")
    name, _, overload = rest.partition(".")
    results = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")(*positional, **named)
    return [results] if isinstance(results, torch.Tensor) else list(results)
