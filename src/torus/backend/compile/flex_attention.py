"""Attention whose scores a user's function changes: dense, with all scores in memory, and its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from torus.backend.lowering.lazy import jax, jnp, lax
from torus.backend.lowering.matmul import product

_LN2 = math.log(2)
"""The operator's sums and maxima are to base 2; the function above it takes them back."""
_ROWS, _BATCH = ((3,), (3,)), ((0, 1), (0, 1))


def attention(
    query: Any,
    key: Any,
    value: Any,
    score_mod: Callable[..., Any],
    mask_mod: Callable[..., Any],
    scale: float,
    score_buffers: Sequence[Any],
    mask_buffers: Sequence[Any],
) -> tuple[Any, Any, Any]:
    """The output, and log-sum-exp and maximum of each row of scores. A query that may look at no key gets zeros.

    query: (B, H, L, D); key, value: (B or 1, heads that divide H, S, D). score_mod: (score, b, h, q, k, *buffers) ->
    (score,), mask_mod: (b, h, q, k, *buffers) -> (bool,).
    """
    work = query.dtype if query.dtype.itemsize > 4 else jnp.dtype("float32")
    key, value = (_spread(x, query) for x in (key, value))
    scores = product(query.astype(work), key.astype(work), _ROWS, _BATCH) * jnp.asarray(scale, work)
    places = [lax.iota("int32", size) for size in scores.shape]
    changed = _everywhere(score_mod, 1, len(score_buffers))(scores, *places, *score_buffers).astype(work)
    allowed = _everywhere(mask_mod, 0, len(mask_buffers))(*places, *mask_buffers)
    changed = jnp.where(allowed, changed, -jnp.inf)
    peak = lax.stop_gradient(changed.max(-1, initial=-jnp.inf))
    finite = jnp.where(peak == -jnp.inf, 0, peak)
    weights = jnp.exp(changed - finite[..., None])
    total = weights.sum(-1)
    some = jnp.where(total == 0, 1, total)
    out = product((weights / some[..., None]).astype(query.dtype), value.astype(query.dtype), ((3,), (2,)), _BATCH)
    log_sum = jnp.where(total == 0, -jnp.inf, jnp.log(some) + finite)
    return out.astype(query.dtype), (log_sum / _LN2).astype("float32"), (peak / _LN2).astype("float32")


def gradients(
    grad_out: Any, grad_log_sum: Any, tensors: Sequence[Any], score_buffers: Sequence[Any], rest: Sequence[Any]
) -> tuple[Any, Any, Any, tuple[Any, ...]]:
    """The gradients of query, key, value and the buffers of `score_mod`; None for a buffer of integers.

    tensors: query, key and value. rest: score_mod, mask_mod, scale and the buffers of mask_mod.
    """
    score_mod, mask_mod, scale, mask_buffers = rest
    buffers = list(score_buffers)
    smooth = [i for i, b in enumerate(buffers) if hasattr(b, "dtype") and jnp.issubdtype(b.dtype, jnp.floating)]

    def forward(query: Any, key: Any, value: Any, *varied: Any) -> tuple[Any, Any]:
        given = [varied[smooth.index(i)] if i in smooth else b for i, b in enumerate(buffers)]
        out, log_sum, _ = attention(query, key, value, score_mod, mask_mod, scale, given, mask_buffers)
        return out, log_sum

    (out, log_sum), pull = jax.vjp(forward, *tensors, *(buffers[i] for i in smooth))
    wanted = [
        jnp.zeros_like(like) if given is None else given.astype(like.dtype)
        for like, given in ((out, grad_out), (log_sum, grad_log_sum))
    ]
    query, key, value, *found = pull(tuple(wanted))
    return query, key, value, tuple(found[smooth.index(i)] if i in smooth else None for i in range(len(buffers)))


def _spread(x: Any, query: Any) -> Any:
    """Keys or values as many as there are batches and heads of queries."""
    x = jnp.repeat(x, query.shape[1] // x.shape[1], axis=1)
    return jnp.broadcast_to(x, (query.shape[0], *x.shape[1:]))


def _everywhere(fn: Callable[..., Any], scores: int, buffers: int) -> Callable[..., Any]:
    """`fn` for every batch, head, query and key; `scores` of its arguments, the first ones, have these dimensions."""

    def call(*args: Any) -> Any:
        return fn(*args)[0]

    for place in (3, 2, 1, 0):  # the innermost dimension first
        axes = [0 if place == i else None for i in range(4)]
        call = jax.vmap(call, in_axes=(*[0] * scores, *axes, *[None] * buffers))
    return call


def accept_device() -> None:
    """Tell Dynamo that `torch.nn.attention.flex_attention` takes this device's tensors, which it refuses by name."""
    from torch._dynamo.trace_rules import get_torch_obj_rule_map
    from torch._dynamo.variables import UserFunctionVariable
    from torch.compiler import substitute_in_graph
    from torch.nn.attention import flex_attention

    validate = flex_attention._validate_device
    known = ("cuda", "cpu", "xpu", "hpu", "mps")

    def validate_device(query: Any, key: Any, value: Any) -> None:
        kind = query.device.type
        if kind in ("cpu", "mps") and (query.requires_grad or key.requires_grad or value.requires_grad):
            raise NotImplementedError(
                f"FlexAttention does not support backward on {kind.upper()}. "
                "Please set the input requires_grad to False or use another device."
            )
        if kind != "tpu" and kind not in known:
            raise ValueError(f"FlexAttention is not supported on {kind} device.")

    substitute_in_graph(validate)(validate_device)
    # Dynamo looks into this one, although it is ours.
    get_torch_obj_rule_map()[validate_device] = UserFunctionVariable
