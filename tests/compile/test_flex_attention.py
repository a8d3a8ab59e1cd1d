"""`torch.nn.attention.flex_attention` against its formula in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from tests.compile.compare import compiled, moved, randn, same

QUERIES, KEYS = 6, 9
Q, K, V = randn(2, 4, QUERIES, 8), randn(2, 4, KEYS, 8), randn(2, 4, KEYS, 5)
BIAS = randn(4, KEYS)
ROW, COLUMN = torch.arange(QUERIES)[:, None], torch.arange(KEYS)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, change: Callable[[Any], Any], mask: Any) -> Any:
    """The output, and the natural logarithm of the sum of each row; a row that is masked as a whole gives zeros."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = change(q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf)
    some = mask.any(-1, keepdim=True)
    weights = scores.masked_fill(~some, 0).softmax(-1) * some
    return weights @ v, torch.logsumexp(scores, -1)


def check(
    args: tuple[torch.Tensor, ...],
    fn: Callable[..., Any],
    reference: Callable[..., Any],
    tolerance: float = 2e-6,
) -> None:
    there = [moved(x, "tpu").requires_grad_() for x in args]
    here = [x.double().requires_grad_() for x in args]
    actual, expected = compiled(fn, fullgraph=True)(*there), reference(*here)
    rows = torch.isfinite(expected[1])
    for out, log_sum in (actual, expected):
        (out.sin().sum() + log_sum[rows.to(log_sum.device)].cos().sum()).backward()
    same([x.detach().double() for x in actual], [x.detach() for x in expected], tolerance, strides=False)
    same([x.grad.double() for x in there], [x.grad for x in here], tolerance, strides=False)


def test_scores_changed_by_a_function_and_a_captured_tensor() -> None:
    def fn(q: Any, k: Any, v: Any, bias: Any) -> Any:
        def change(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return torch.tanh(score) + (i - j) * 0.1 + bias[h, j]

        out, aux = flex_attention(q, k, v, score_mod=change, return_aux=AuxRequest(lse=True))
        return out, aux.lse

    def reference(q: Any, k: Any, v: Any, bias: Any) -> Any:
        everything = torch.ones(QUERIES, KEYS, dtype=torch.bool)
        return attention(q, k, v, lambda s: torch.tanh(s) + (ROW - COLUMN) * 0.1 + bias[:, None], everything)

    check((Q, K, V, BIAS), fn, reference)


def test_a_mask_with_rows_that_see_nothing() -> None:
    mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i > 1), 2, 4, QUERIES, KEYS, device="tpu")

    def fn(q: Any, k: Any, v: Any) -> Any:
        out, aux = flex_attention(q, k, v, block_mask=mask, return_aux=AuxRequest(lse=True))
        return out, aux.lse

    check((Q, K, V), fn, lambda q, k, v: attention(q, k, v, lambda s: s, (ROW >= COLUMN) & (ROW > 1)))


def test_fewer_heads_of_keys() -> None:
    def fn(q: Any, k: Any, v: Any) -> Any:
        change = lambda score, b, h, i, j: score * (h + 1)  # noqa: E731
        out, aux = flex_attention(q, k, v, score_mod=change, enable_gqa=True, return_aux=AuxRequest(lse=True))
        return out, aux.lse

    def reference(q: Any, k: Any, v: Any) -> Any:
        everything = torch.ones(QUERIES, KEYS, dtype=torch.bool)
        return attention(q, k, v, lambda s: s * torch.arange(1, 5)[:, None, None], everything)

    check((Q, K[:, :2], V[:, :2]), fn, reference)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.bfloat16, 6e-3)])
def test_dtypes(dtype: torch.dtype, tolerance: float) -> None:
    args = [x.to(dtype) for x in (Q, K, V)]
    result = compiled(lambda q, k, v: flex_attention(q, k, v))(*(x.to("tpu") for x in args))
    expected, _ = attention(*(x.double() for x in args), lambda s: s, torch.ones(QUERIES, KEYS, dtype=torch.bool))
    assert result.dtype == dtype
    same(result.double(), expected, tolerance, strides=False)


def test_gradients_on_the_cpu_are_refused_as_before() -> None:
    torch._dynamo.reset()
    q = Q.clone().requires_grad_()
    with pytest.raises(Exception, match="does not support backward on CPU"):
        torch.compile(flex_attention, backend="eager", fullgraph=True)(q, Q, Q)
