"""Strides of elementwise results where PyTorch's word on them depends on the dtype.

Its Python meta kernels convert mixed and half-precision arguments first, to dense tensors, and so promise other strides
than the CPU's kernels give, which convert while they compute.
"""

from __future__ import annotations

from typing import Any

import torch

from torus.backend.eager.request import Request
from torus.backend.lowering.registry import Rule

_HALF = (torch.bfloat16, torch.float16)
_NUMBERS: dict[str, Any] = {"bool": True, "int": 1, "float": 1.0, "complex": 1j}


def without_conversion(request: Request, rule: Rule, promises: list[Any] | None) -> list[Any] | None:
    """`promises` with the strides that the results have when all arguments share one dtype that needs no conversion."""
    dtypes = {tensor.dtype for tensor in request.tensors}
    if rule.promote is None or not promises or (len(dtypes) < 2 and not dtypes & {*_HALF}):
        return promises
    if not all(isinstance(promise, tuple) for promise in promises):
        return promises
    try:
        uniform = _results(request, rule, promises[0][0])
    except Exception:  # this op cannot take that dtype: the promise stands
        return promises
    if len(uniform) != len(promises) or any(tuple(u.shape) != tuple(p[1]) for u, p in zip(uniform, promises)):
        return promises
    return [(dtype, sizes, tuple(u.stride())) for u, (dtype, sizes, _) in zip(uniform, promises)]


def _results(request: Request, rule: Rule, promised: torch.dtype) -> list[torch.Tensor]:
    dtype = torch.float32 if promised.is_floating_point else torch.complex64 if promised.is_complex else torch.int64

    def argument(encoded: tuple[str, Any]) -> Any:
        kind, value = encoded
        if kind == "tensor":
            tensor = request.tensors[value]
            return torch.empty_strided(tensor.sizes, tensor.strides, dtype=dtype, device="meta")
        return _NUMBERS[request.scalars[value].kind] if kind == "scalar" else value

    positional = [argument(encoded) for _, keyword, encoded in request.args if not keyword]
    named = {name: argument(encoded) for name, keyword, encoded in request.args if keyword}
    namespace, _, rest = rule.name.partition("::")
    name, _, overload = rest.partition(".")
    results = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")(*positional, **named)
    return [results] if isinstance(results, torch.Tensor) else list(results)
