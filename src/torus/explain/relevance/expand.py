"""Large ops as smaller ones, so that rules are needed for the smaller ones only.

Most come from PyTorch's own table of decompositions. An op is expanded if it stands in `EXPANDED`, or if PyTorch
defines it by other ops (CompositeImplicit).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import _disable_current_modes

aten = torch.ops.aten


@functools.cache
def expansion(op: torch._ops.OpOverload) -> Callable[..., Any] | None:
    """The function that computes an op by smaller ones, None if there is none. It may return NotImplemented."""
    name = op._schema.name
    if op.name() in OURS:
        return OURS[op.name()]
    if name in EXPANDED:
        return decomposition_table.get(op)
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")
    return op.decompose if composite else None


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """Softmax attention, (..., length, size); a boolean bias is a mask of what may be seen."""
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if query.shape[1] != key.shape[1]:
        times = query.shape[1] // key.shape[1]
        key, value = (tensor.repeat_interleave(times, 1) for tensor in (key, value))
    scores = torch.matmul(query * factor, key.transpose(-2, -1))
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~seen, -torch.inf)
    if bias is not None:
        scores = scores.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool else scores + bias
    return torch.matmul(scores.softmax(-1), value)


def _first_of(op: Any, first: Callable[..., Any]) -> Callable[..., Any]:
    """An op whose first results are those of `first`; nothing reads the others, what it keeps for its backward."""

    def run(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        ours = first(*args, **kwargs)
        with _disable_current_modes():
            return *ours, *op(*args, **kwargs)[len(ours) :]

    return run


def _flash(query: Any, key: Any, value: Any, dropout: float = 0.0, causal: bool = False, **options: Any) -> Any:
    return (_attention(query, key, value, options.get("attn_mask"), causal, options.get("scale")),)


def _fused(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    dropout: float = 0.0,
    causal: bool = False,
    *rest: Any,
    **options: Any,
) -> Any:
    return (_attention(query, key, value, bias, options.get("is_causal", causal), options.get("scale")),)


def _lstm_cell(of_input: Any, of_hidden: Any, cell: Any, bias: Any = None, bias_hidden: Any = None) -> Any:
    gates = of_input + of_hidden
    for b in (bias, bias_hidden):
        gates = gates if b is None else gates + b
    enter, forget, new, leave = gates.chunk(4, 1)
    cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * cell.tanh(), cell


def _gru_cell(of_input: Any, of_hidden: Any, hidden: Any, bias: Any = None, bias_hidden: Any = None) -> Any:
    of_input = of_input if bias is None else of_input + bias
    of_hidden = of_hidden if bias_hidden is None else of_hidden + bias_hidden
    (reset, update, new), (reset_h, update_h, new_h) = of_input.chunk(3, 1), of_hidden.chunk(3, 1)
    new = (new + (reset + reset_h).sigmoid() * new_h).tanh()
    return (new + (update + update_h).sigmoid() * (hidden - new),)


def _copy(tensor: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    return source.to(tensor).expand(tensor.shape)


def _fill(tensor: torch.Tensor, value: Any) -> torch.Tensor:
    return _copy(tensor, value) if isinstance(value, torch.Tensor) else torch.full_like(tensor, value)


def _variance(
    tensor: torch.Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> torch.Tensor:
    centered = tensor - tensor.mean(dim, keepdim=True)
    count = tensor.numel() // max(1, tensor.mean(dim, keepdim=True).numel())
    factor = count - (1 if correction is None else correction)
    return (centered * centered).sum(dim, keepdim=keepdim) / factor


def _variance_and_mean(tensor: torch.Tensor, dim: Any = None, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return _variance(tensor, dim, **options), tensor.mean(dim, keepdim=options.get("keepdim", False))


def _deviation(tensor: torch.Tensor, dim: Any = None, **options: Any) -> torch.Tensor:
    return _variance(tensor, dim, **options).sqrt()


def _masked_put(
    tensor: torch.Tensor,
    indices: list[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Any:
    """One value in the place of what a mask selects is a choice; any other assignment stays what it is."""
    mask = indices[0]
    if len(indices) != 1 or mask is None or mask.dtype != torch.bool or values.numel() != 1 or accumulate:
        return NotImplemented
    mask = mask.reshape(*mask.shape, *[1] * (tensor.ndim - mask.ndim))
    return torch.where(mask, values.reshape(()), tensor)


OURS: dict[str, Callable[..., Any]] = {
    "aten::_scaled_dot_product_flash_attention_for_cpu": _first_of(
        aten._scaled_dot_product_flash_attention_for_cpu, _flash
    ),
    "aten::_scaled_dot_product_fused_attention_overrideable": _first_of(
        aten._scaled_dot_product_fused_attention_overrideable, _fused
    ),
    "aten::_thnn_fused_gru_cell": _first_of(aten._thnn_fused_gru_cell, _gru_cell),
    "aten::_thnn_fused_lstm_cell": _first_of(aten._thnn_fused_lstm_cell, _lstm_cell),
    "aten::copy": _copy,
    "aten::fill.Scalar": _fill,
    "aten::fill.Tensor": _fill,
    "aten::_index_put_impl": _masked_put,
    "aten::index_put": _masked_put,
    "aten::std.correction": _deviation,
    "aten::var.correction": _variance,
    "aten::var_mean.correction": _variance_and_mean,
}
"""Expansions of ours: where PyTorch has none, or one by other than ATen ops."""

EXPANDED = frozenset(
    f"aten::{name}"
    for name in (
        "_fused_rms_norm _native_batch_norm_legit _native_batch_norm_legit_no_training _prelu_kernel _safe_softmax _weight_norm_interface addcdiv "
        "aminmax binary_cross_entropy binary_cross_entropy_with_logits dist glu grid_sampler_2d grid_sampler_3d huber_loss "
        "l1_loss linalg_vector_norm masked_fill mse_loss native_batch_norm native_group_norm native_layer_norm nll_loss_forward norm "
        "renorm smooth_l1_loss soft_margin_loss std_mean"
    ).split()
)
"""Ops taken apart by PyTorch's own decompositions."""
