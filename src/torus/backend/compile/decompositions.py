"""Ops that are written with others: all of them in graphs, some only where sizes are dynamic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize
from torch.nn.modules import linear_cross_entropy

aten = torch.ops.aten


def _scale(query: torch.Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def _scores(query: Any, key: Any, bias: Any, causal: bool, scale: float | None) -> Any:
    scores = torch.matmul(query, key.transpose(-2, -1)) * _scale(query, scale)
    if causal:
        ones = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device)
        scores = torch.where(ones.tril(), scores, float("-inf"))
    return scores if bias is None else scores + bias


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_bias: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """Scaled dot-product attention through products and a softmax, as its fused form returns it."""
    if dropout_p:
        return NotImplemented
    scores = _scores(query, key, attn_bias, is_causal, scale)
    weights = torch.softmax(scores, -1)
    empty = query.new_empty((), dtype=torch.int64)
    mask = query.new_empty(())
    lse = torch.logsumexp(scores.float() if scores.dtype.itemsize < 4 else scores, -1)
    return torch.matmul(weights, value), lse, empty, empty, query.shape[-2], key.shape[-2], empty, empty, mask


def attention_backward(
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_bias: Any,
    grad_input_mask: Any,
    out: Any,
    logsumexp: Any,
    cum_seq_q: Any,
    cum_seq_k: Any,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Any,
    philox_offset: Any,
    *,
    scale: float | None = None,
) -> Any:
    """The gradients of `attention`."""
    if dropout_p:
        return NotImplemented
    factor = _scale(query, scale)
    weights = torch.softmax(_scores(query, key, attn_bias, is_causal, scale), -1)
    grad_value = torch.matmul(weights.transpose(-2, -1), grad_out)
    grad_weights = torch.matmul(grad_out, value.transpose(-2, -1))
    grad_scores = weights * (grad_weights - (grad_weights * weights).sum(-1, keepdim=True))
    grad_query = torch.matmul(grad_scores, key) * factor
    grad_key = torch.matmul(grad_scores.transpose(-2, -1), query) * factor
    grad_bias = None
    if attn_bias is not None and grad_input_mask[3]:
        grad_bias = grad_scores.sum_to_size(attn_bias.shape)
    return grad_query, grad_key, grad_value, grad_bias


def repeat(x: torch.Tensor, repeats: Any) -> torch.Tensor:
    """Copies beside each other in every dimension, through one dimension of copies beside each of its own."""
    sizes = [1] * (len(repeats) - x.dim()) + list(x.shape)
    apart = x.reshape([n for size in sizes for n in (1, size)])
    copies = apart.expand([n for times, size in zip(repeats, sizes) for n in (times, size)])
    return copies.reshape([times * size for times, size in zip(repeats, sizes)])


FOR_PADDING: dict[Any, Callable[..., Any]] = {
    aten.repeat.default: repeat,
    aten._scaled_dot_product_fused_attention_overrideable.default: attention,
    aten._scaled_dot_product_fused_attention_overrideable_backward.default: attention_backward,
}


def pseudo_inverse(x: torch.Tensor, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> torch.Tensor:
    """The Moore-Penrose inverse through singular values; those at most max(atol, rtol * largest) count as zero."""
    if hermitian:
        values, vectors = torch.linalg.eigh(x)
        left, right, sizes = vectors, vectors.mH, values.abs()
    else:
        left, values, right = torch.linalg.svd(x, full_matrices=False)
        sizes = values
    if atol is None:
        atol = torch.zeros((), dtype=sizes.dtype, device=x.device)
    if rtol is None:
        epsilon = torch.finfo(x.dtype).eps * max(x.shape[-2:])
        rtol = torch.where(atol > 0, 0.0, epsilon)
    limit = torch.maximum(atol.unsqueeze(-1), rtol.unsqueeze(-1) * sizes.amax(-1, keepdim=True))
    inverse = torch.where(sizes > limit, values.reciprocal(), 0.0).to(x.dtype)
    return (right.mH * inverse.unsqueeze(-2)) @ left.mH


def python_code(op: Any) -> Callable[..., Any]:
    """PyTorch's own Python code of its op, which has none of ATen's schemas, without its writes to buffers."""

    def code(*args: Any, **kwargs: Any) -> Any:
        return dispatch_functionalize(op._init_fn, FunctionalTensorMode())(*args, **kwargs)

    return code


_CHUNKED = (
    linear_cross_entropy._linear_cross_entropy_batch_chunked,
    linear_cross_entropy._linear_cross_entropy_batch_chunked_no_reduction,
)
ALWAYS: dict[Any, Callable[..., Any]] = {
    aten.linalg_pinv.atol_rtol_tensor: pseudo_inverse,
    **{op._opoverload: python_code(op) for op in _CHUNKED},
}
