"""What PyTorch's compiler gets wrong or does not know about this device, put right on import of the backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import decorators
from torch._subclasses import fake_impls
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._sympy.numbers import int_oo

from torus.backend.eager.memory_format import in_channels_last, is_channels_last

aten = torch.ops.aten


def install() -> None:
    """Do it; a second time changes nothing."""
    # A hook that a compiled module gets later, as attribution libraries add them, counts; Dynamo would not look again.
    torch._dynamo.config.skip_nnmodule_hook_guards = False
    if decorators._DimRange is not _dim_range:
        decorators._DimRange = _dim_range  # type: ignore[assignment,misc]
        table = fake_impls.op_implementations_dict
        for op in (aten.convolution.default, aten.convolution_backward.default):
            table[op] = _convolution(table[op])
        table[aten._grouped_mm.default] = _grouped_mm


_DimRange = decorators._DimRange


def _dim_range(dim: int, min: int | None, max: int | None) -> decorators._DimRange:
    """What `mark_dynamic` notes. PyTorch has no range with one end open, and fails for one end given alone."""
    if min is None and max is not None:
        min = 0
    if max is None and min is not None:
        max = int_oo
    return _DimRange(dim, min, max)  # type: ignore[arg-type]


def _convolution(known: Callable[..., Any]) -> Callable[..., Any]:
    """The fake convolution, channels last where eager mode's results are (see `keep_channels_last`)."""

    def fake(mode: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        results = known(mode, op, *args, **kwargs)
        names = [a.name for a in op._schema.arguments]
        given = dict(zip(names, args)) | kwargs
        operands = [given["input"], given["weight"]]
        if operands[0].device.type != "tpu" or free_unbacked_symbols(operands):
            return results
        if not any(is_channels_last(t.shape, t.stride()) for t in operands):
            return results
        if isinstance(results, torch.Tensor):
            return in_channels_last(results)
        return tuple(None if r is None else in_channels_last(r) for r in results)

    return fake


def _grouped_mm(
    mode: Any,
    op: Any,
    a: torch.Tensor,
    b: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """The fake product of groups. PyTorch's own knows bfloat16 alone, and strides that CUDA can read."""
    if a.device.type != "tpu":
        return NotImplemented
    torch._check(a.size(-1) == b.size(-2), lambda: "contraction dimension of mat_a and mat_b must match")
    leading: tuple[int, ...] = ()  # groups of rows, or of columns, lie one after another in two dimensions
    if a.dim() == b.dim():
        leading = (a.size(0) if offs is None else offs.size(0),)
    return a.new_empty((*leading, a.size(-2), b.size(-1)), dtype=out_dtype or a.dtype)
