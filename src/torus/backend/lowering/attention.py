"""Scaled dot product attention, its gradient, and the inference paths of `torch.nn`'s transformer modules.

Heads of queries come in groups that share a head of keys and values (groups of one where the numbers are equal), so
everything is computed in five dimensions: batch, key head, group member, query, key. Scores and softmax are float32 for
half precisions. A query that may look at no key gets zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torus.backend.lowering.apply import cast, current
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.matmul import product
from torus.backend.lowering.normalization import layer_norm
from torus.backend.lowering.random import uniform
from torus.backend.lowering.reductions import widen
from torus.backend.lowering.registry import OutSpec, lowers
from torus.backend.lowering.softmax import safe_softmax_over

HEADS = ((0, 1), (0, 1))


def _group(q: Any, heads: int) -> Any:
    """(B, heads * members, L, D) -> (B, heads, members, L, D)."""
    return q.reshape(q.shape[0], heads, q.shape[1] // heads, *q.shape[2:])


def _narrow(x: Any, like: Any) -> Any:
    """`x` in the dtype of the tensor it is multiplied with; on XLA:CPU, where products take float32, as it is."""
    return x if current().platform == "cpu" else x.astype(like.dtype)


def _scores(q: Any, k: Any, bias: Any, is_causal: bool, scale: Any) -> Any:
    """Scaled, masked scores. q: (B, H, G, L, D); k: (B, H, S, D); bias broadcasts over (B, H * G, L, S)."""
    scores = product(q, k, ((4,), (3,)), HEADS)
    scores = scores * _scale(q, scale, scores.dtype)
    if is_causal:
        query, key = (lax.broadcasted_iota("int32", scores.shape[-2:], axis) for axis in (0, 1))
        scores = jnp.where(query >= key, scores, -jnp.inf)
    if bias is None:
        return scores
    batch, heads, members, length, keys = scores.shape
    bias = jnp.broadcast_to(bias, (batch, heads * members, length, keys)).reshape(scores.shape)
    return jnp.where(bias, scores, -jnp.inf) if bias.dtype == bool else scores + bias.astype(scores.dtype)


def _scale(q: Any, scale: Any, dtype: Any) -> Any:
    return jnp.asarray(1 / math.sqrt(q.shape[-1]) if scale is None else scale, dtype)


def _log_sum(scores: Any) -> Any:
    peak = jnp.max(scores, -1)
    peak = jnp.where(peak == -jnp.inf, jnp.zeros((), peak.dtype), peak)
    return peak + lax.log(jnp.sum(lax.exp(scores - peak[..., None]), -1))


def _kept(state: Any, shape: tuple[int, ...], dropout_p: float, dtype: Any) -> Any:
    """What dropout multiplies each weight by."""
    if dropout_p >= 1:
        return jnp.zeros(shape, dtype)
    keep = uniform(state, shape, "float32") >= dropout_p
    return jnp.where(keep, jnp.asarray(1 / (1 - dropout_p), dtype), jnp.zeros((), dtype))


def _to_int64(low: Any, high: Any) -> Any:
    return lax.bitcast_convert_type(low.astype("uint64") | (high.astype("uint64") << jnp.uint64(32)), "int64")


def _words(number: Any) -> tuple[Any, Any]:
    bits = lax.bitcast_convert_type(number, "uint64")
    return bits.astype("uint32"), (bits >> jnp.uint64(32)).astype("uint32")


@lowers("aten::_scaled_dot_product_fused_attention_overrideable", static=("dropout_p",))
def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_bias: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: Any = None,
    generator: Any = None,
    out: tuple[OutSpec, ...],
) -> Any:
    """Output, log-sum-exp of the scores, two absent tables, seed and offset of the dropout mask, no debug mask."""
    scores = _scores(_group(query, key.shape[1]), key, attn_bias, is_causal, scale)
    weights = safe_softmax_over(scores, -1)
    seed = offset = jnp.zeros((), "int64")
    if dropout_p > 0:
        weights = weights * _kept(generator, weights.shape, dropout_p, weights.dtype)
        seed, offset = _to_int64(generator[0], generator[1]), _to_int64(generator[2], generator[3])
    result = product(_narrow(weights, value), value, ((4,), (2,)), HEADS)
    log_sum = _log_sum(scores).reshape(out[1].shape)
    return result.reshape(out[0].shape), log_sum, None, None, seed, offset, None


def _sum_to(x: Any, shape: tuple[int, ...]) -> Any:
    """The gradient of something of `shape` that was broadcast to the shape of `x`."""
    lead = x.ndim - len(shape)
    axes = [a for a in range(x.ndim) if a < lead or (shape[a - lead] == 1 and x.shape[a] != 1)]
    return jnp.sum(x, tuple(axes)).reshape(shape)


@lowers("aten::_scaled_dot_product_fused_attention_overrideable_backward", static=("dropout_p",))
def attention_backward(
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_bias: Any,
    grad_input_mask: Sequence[bool],
    out_: Any,
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
    scale: Any = None,
) -> Any:
    """Gradients of query, key, value and bias; the weights are computed again."""
    q, grad = _group(query, key.shape[1]), _group(grad_out, key.shape[1])
    weights = safe_softmax_over(_scores(q, key, attn_bias, is_causal, scale), -1)
    kept = None
    if dropout_p > 0:
        state = jnp.stack([*_words(philox_seed), *_words(philox_offset)])
        kept = _kept(state, weights.shape, dropout_p, weights.dtype)
    dropped = weights if kept is None else weights * kept
    grad_value = product(_narrow(dropped, grad), grad, ((2, 3), (2, 3)), HEADS)
    grad_weights = product(grad, value, ((4,), (3,)), HEADS)
    grad_weights = grad_weights if kept is None else grad_weights * kept
    weighted = grad_weights * weights
    grad_scores = weighted - weights * jnp.sum(weighted, -1, keepdims=True)
    narrow = _narrow(grad_scores, q)
    factor = _scale(q, scale, grad_scores.dtype)
    results = [
        product(narrow, key, ((4,), (2,)), HEADS).reshape(query.shape) * factor,
        product(narrow, q, ((2, 3), (2, 3)), HEADS).reshape(key.shape) * factor,
        grad_value.reshape(value.shape),
        _bias_gradient(grad_scores, attn_bias),
    ]
    return tuple(r if wanted else None for r, wanted in zip(results, grad_input_mask))


def _bias_gradient(grad_scores: Any, bias: Any) -> Any:
    if bias is None or bias.dtype == bool:
        return None
    batch, heads, members, length, keys = grad_scores.shape
    return _sum_to(grad_scores.reshape(batch, heads * members, length, keys), bias.shape)


# Inference paths of torch.nn.MultiheadAttention and torch.nn.TransformerEncoderLayer


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    result = product(x, weight, ((x.ndim - 1,), (1,)))
    return result if bias is None else result + widen(bias)


def _split_heads(x: Any, heads: int) -> Any:
    """(B, L, E) -> (B, heads, L, E / heads)."""
    return jnp.swapaxes(x.reshape(*x.shape[:2], heads, -1), 1, 2)


def _attention_mask(mask: Any, mask_type: int | None) -> Any:
    """True where a key may be looked at. Type 0 is an (L, S) mask, 1 a (B, S) padding mask, 2 has four dimensions."""
    if mask is None:
        return None
    allowed = ~cast(mask, "bool")
    return allowed[:, None, None, :] if mask_type == 1 else allowed


def _multi_head(
    query: Any, key: Any, value: Any, heads: int, weights: Sequence[Any], mask: Any, mask_type: int | None
) -> tuple[Any, Any]:
    """The projected result (B, L, E) and the attention weights (B, heads, L, S)."""
    qkv_weight, qkv_bias, proj_weight, proj_bias = weights
    parts = zip((query, key, value), jnp.split(qkv_weight, 3), jnp.split(qkv_bias, 3))
    q, k, v = (_split_heads(_linear(x, w, b), heads) for x, w, b in parts)
    scores = _scores(q[:, :, None], k, _attention_mask(mask, mask_type), False, None)
    attended = safe_softmax_over(scores, -1)
    mixed = product(attended, v, ((4,), (2,)), HEADS)[:, :, 0]
    joined = jnp.swapaxes(mixed, 1, 2).reshape(query.shape)
    return _linear(joined.astype(proj_weight.dtype), proj_weight, proj_bias), attended[:, :, 0]


@lowers("aten::_native_multi_head_attention")
def multi_head_attention(
    query: Any,
    key: Any,
    value: Any,
    embed_dim: int,
    num_head: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    mask: Any = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:
    weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
    result, attended = _multi_head(query, key, value, num_head, weights, mask, mask_type)
    if not need_weights:
        return result, None
    return result, jnp.mean(attended, 1) if average_attn_weights else attended


@lowers("aten::_transformer_encoder_layer_fwd")
def transformer_encoder_layer(
    src: Any,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    use_gelu: bool,
    norm_first: bool,
    eps: Any,
    norm_weight_1: Any,
    norm_bias_1: Any,
    norm_weight_2: Any,
    norm_bias_2: Any,
    ffn_weight_1: Any,
    ffn_bias_1: Any,
    ffn_weight_2: Any,
    ffn_bias_2: Any,
    mask: Any = None,
    mask_type: int | None = None,
) -> Any:
    def normalize(x: Any, weight: Any, bias: Any) -> Any:
        specs = (OutSpec(x.shape, "float32"), *[OutSpec((*x.shape[:-1], 1), "float32")] * 2)
        return layer_norm(x, [embed_dim], weight, bias, eps, out=specs)[0]

    def attend(x: Any) -> Any:
        x = x.astype(src.dtype)
        return _multi_head(x, x, x, num_heads, (qkv_weight, qkv_bias, proj_weight, proj_bias), mask, mask_type)[0]

    def feed_forward(x: Any) -> Any:
        hidden = _linear(x.astype(src.dtype), ffn_weight_1, ffn_bias_1)
        hidden = _gelu(hidden) if use_gelu else jnp.maximum(hidden, jnp.zeros((), hidden.dtype))
        return _linear(hidden.astype(src.dtype), ffn_weight_2, ffn_bias_2)

    x = widen(src)
    if norm_first:
        x = x + attend(normalize(x, norm_weight_1, norm_bias_1))
        return x + feed_forward(normalize(x, norm_weight_2, norm_bias_2))
    x = normalize(x + attend(x), norm_weight_1, norm_bias_1)
    return normalize(x + feed_forward(x), norm_weight_2, norm_bias_2)


def _gelu(x: Any) -> Any:
    return x * (1 + lax.erf(x * jnp.asarray(math.sqrt(0.5), x.dtype))) / 2


@lowers("aten::_transform_bias_rescale_qkv")
def transform_bias_rescale_qkv(qkv: Any, qkv_bias: Any, num_heads: int) -> Any:
    """Query, key and value (batch, heads, length, size) out of one projection; the query divided by sqrt(size)."""
    batch, length, width = qkv.shape
    size = width // 3 // num_heads
    parts = (qkv + qkv_bias).reshape(batch, length, 3, num_heads, size).transpose(2, 0, 3, 1, 4)
    return parts[0] / jnp.asarray(math.sqrt(size), parts.dtype), parts[1], parts[2]
