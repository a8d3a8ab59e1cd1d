"""Attention against CPU PyTorch: the ordinary function, in float64 where the comparison is of accuracy."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.lowering.agree import unexercised
from tests.lowering.evaluate import evaluate
from tests.lowering.test_kernels import NAMED
from torus.backend.lowering import attention

pytestmark = pytest.mark.slow

aten = torch.ops.aten
FORWARD = aten._scaled_dot_product_fused_attention_overrideable.default
BACKWARD = aten._scaled_dot_product_fused_attention_overrideable_backward.default
NATIVE = [aten._native_multi_head_attention.default, aten._transformer_encoder_layer_fwd.default]
INF = math.inf


def randn(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def inputs(heads: int = 4, kv_heads: int = 4, length: int = 5, keys: int = 7) -> list[torch.Tensor]:
    sizes = [(2, heads, length, 8), (2, kv_heads, keys, 8), (2, kv_heads, keys, 6)]
    return [randn(*s, seed=i) for i, s in enumerate(sizes)]


def fused(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: Any, p: float, causal: bool, scale: Any
) -> list[Any]:
    """The rule's results and the gradients it gives for ones."""
    results = evaluate(FORWARD, q, k, v, bias, p, causal, False, scale=scale)
    out, log_sum, _, _, seed, offset, _ = results
    mask = [True, True, True, bias is not None and bias.requires_grad]
    bias = None if bias is None else bias.detach()
    sizes = (q.shape[-2], k.shape[-2])
    saved = (out, log_sum, None, None, *sizes, p, causal, seed, offset)
    return [*results, evaluate(BACKWARD, torch.ones_like(out), q, k, v, bias, mask, *saved, scale=scale)]


BIASES = {
    "none": None,
    "full": randn(2, 4, 5, 7, seed=5),
    "per query": randn(5, 7, seed=5),
    "per batch": randn(2, 1, 1, 7, seed=5),
    "per head": randn(1, 4, 5, 7, seed=5),
}


@pytest.mark.parametrize("causal", [False, True], ids=["", "causal"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention_and_gradients(causal: bool, kv_heads: int, scale: float | None) -> None:
    check(inputs(kv_heads=kv_heads), None, causal, scale)


@pytest.mark.parametrize("bias", BIASES.values(), ids=BIASES)
def test_bias_and_its_gradient(bias: torch.Tensor | None) -> None:
    check(inputs(), bias, False, None)


def check(tensors: list[torch.Tensor], bias: torch.Tensor | None, causal: bool, scale: float | None) -> None:
    actual = fused(*tensors, None if bias is None else bias.clone().requires_grad_(), 0.0, causal, scale)
    leaves = [t.double().requires_grad_() for t in [*tensors, *([] if bias is None else [bias])]]
    q, k, v = leaves[:3]
    wide = leaves[3] if bias is not None else None
    expected = F.scaled_dot_product_attention(
        q, k, v, wide, 0.0, causal, scale=scale, enable_gqa=q.shape[-3] != k.shape[-3]
    )
    gradients = torch.autograd.grad(expected.sum(), leaves)
    torch.testing.assert_close(actual[0].double(), expected.detach(), rtol=1e-5, atol=1e-6)
    for ours, right in zip(actual[-1], gradients):
        torch.testing.assert_close(ours.double(), right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_as_accurate_as_on_the_cpu(dtype: torch.dtype) -> None:
    q, k, v = (t.to(dtype) for t in inputs())
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double())
    error = lambda out: (out.double() - exact).abs().max()  # noqa: E731
    assert error(fused(q, k, v, None, 0.0, False, None)[0]) <= error(F.scaled_dot_product_attention(q, k, v))


def test_log_sum_exp() -> None:
    q, k, v = inputs()
    expected = torch.logsumexp(q @ k.mT / math.sqrt(8), -1)
    torch.testing.assert_close(fused(q, k, v, None, 0.0, False, None)[1], expected)


def test_boolean_mask_and_a_query_that_sees_nothing() -> None:
    q, k, v = inputs()
    mask = randn(5, 7) > 0
    mask[2] = False
    results = fused(q, k, v, mask, 0.0, False, None)
    torch.testing.assert_close(results[0], F.scaled_dot_product_attention(q, k, v, mask))
    assert (results[0][:, :, 2] == 0).all()
    assert (results[-1][0][:, :, 2] == 0).all()
    as_bias = torch.zeros(5, 7).masked_fill(~mask, -INF)
    torch.testing.assert_close(fused(q, k, v, as_bias, 0.0, False, None)[0], results[0])


def test_dropout_drops_scales_and_is_replayed_by_the_gradient() -> None:
    q, k = torch.zeros(1, 1, 64, 4), torch.zeros(1, 1, 64, 4)
    v = torch.eye(64)[None, None]
    out, _, _, _, seed, offset, _, gradients = fused(q, k, v, None, 0.25, False, None)
    kept = out != 0
    torch.testing.assert_close(out[kept], torch.full_like(out[kept], 1 / 64 / 0.75))
    assert 0.7 < kept.float().mean() < 0.8
    assert (seed.item(), offset.item()) == (1, 0)
    torch.testing.assert_close(gradients[2], out.sum(-2)[..., None].expand_as(v))


def test_full_dropout_gives_zeros() -> None:
    assert (fused(*inputs(), None, 1.0, False, None)[0] == 0).all()


E, H = 16, 4


@pytest.mark.parametrize("mask_type", [None, 0, 1])
@pytest.mark.parametrize("need_weights", [True, False])
def test_native_multi_head_attention(mask_type: int | None, need_weights: bool) -> None:
    x = randn(3, 5, E)
    weights = [randn(3 * E, E, seed=1), randn(3 * E, seed=2), randn(E, E, seed=3), randn(E, seed=4)]
    mask = {None: None, 0: torch.ones(5, 5).triu(1).bool(), 1: torch.arange(5) >= torch.tensor([[5], [3], [2]])}[
        mask_type
    ]
    args = (x, x, x, E, H, *weights, mask, need_weights, True, mask_type)
    expected = NATIVE[0](*args)
    actual = evaluate(NATIVE[0], *args)
    torch.testing.assert_close(actual[0], expected[0], rtol=1e-4, atol=1e-4)
    if need_weights:
        torch.testing.assert_close(actual[1], expected[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gelu", [True, False], ids=["gelu", "relu"])
@pytest.mark.parametrize("norm_first", [True, False], ids=["norm first", "norm last"])
def test_transformer_encoder_layer(gelu: bool, norm_first: bool) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(
        E, H, 32, activation="gelu" if gelu else "relu", batch_first=True, norm_first=norm_first
    ).eval()
    a = layer.self_attn
    parts = [a.in_proj_weight, a.in_proj_bias, a.out_proj.weight, a.out_proj.bias, gelu, norm_first, layer.norm1.eps]
    for module in (layer.norm1, layer.norm2, layer.linear1, layer.linear2):
        parts += [module.weight, module.bias]
    x = randn(3, 5, E)
    with torch.no_grad():
        torch.testing.assert_close(evaluate(NATIVE[1], x, E, H, *parts), layer(x), rtol=1e-4, atol=1e-5)


def test_every_rule_has_a_case() -> None:
    assert not unexercised(attention, [*NAMED, FORWARD, BACKWARD, *NATIVE])
