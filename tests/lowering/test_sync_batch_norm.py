"""Batch normalization in pieces: parts of a batch give what the CPU's batch norm gives for the whole."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

aten = torch.ops.aten
MOMENTUM, EPS = 0.1, 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(4, 4), (5, 3)], ids=["equal parts", "unequal parts"])
@pytest.mark.parametrize("affine", [True, False])
def test_parts_agree_with_the_whole(sizes: tuple[int, int], affine: bool, dtype: torch.dtype, device: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(8, 3, 5, generator=generator) * 2 + 7).to(dtype)
    dy = torch.randn(8, 3, 5, generator=generator).to(dtype)
    wide = torch.promote_types(dtype, torch.float32)
    weight, bias = (torch.randn(3, generator=generator).to(wide) for _ in range(2)) if affine else (None, None)
    running = [torch.zeros(3, dtype=wide), torch.ones(3, dtype=wide)]

    leaves = [t.double().requires_grad_() for t in (x, weight, bias) if t is not None]
    expected_running = [r.double().clone() for r in running]
    expected = F.batch_norm(leaves[0], *expected_running, *leaves[1:], training=True, momentum=MOMENTUM, eps=EPS)
    expected_grads = torch.autograd.grad(expected, leaves, dy.double())

    weight, bias = (None if t is None else t.to(device) for t in (weight, bias))
    running = [r.to(device) for r in running]
    parts, grads = x.to(device).split(list(sizes)), dy.to(device).split(list(sizes))
    stats = [aten.batch_norm_stats(part, EPS) for part in parts]
    means, invstds = (torch.stack(list(values)) for values in zip(*stats))
    counts = torch.tensor([float(size * 5) for size in sizes], dtype=wide, device=device)
    if sizes[0] == sizes[1]:
        gathered = aten.batch_norm_gather_stats(x.to(device), means, invstds, *running, MOMENTUM, EPS, sizes[0] * 5)
    else:
        gathered = aten.batch_norm_gather_stats_with_counts(
            x.to(device), means, invstds, *running, MOMENTUM, EPS, counts
        )
    found = torch.cat([aten.batch_norm_elemt(part, weight, bias, *gathered, EPS) for part in parts])
    sums = [
        aten.batch_norm_backward_reduce(grad, part, *gathered, weight, True, True, True)
        for grad, part in zip(grads, parts)
    ]
    total, projected, weight_grad, bias_grad = (sum(values) for values in zip(*sums))
    whole = counts.to(torch.int32)
    gradient = torch.cat(
        [
            aten.batch_norm_backward_elemt(grad, part, *gathered, weight, total, projected, whole)
            for grad, part in zip(grads, parts)
        ]
    )

    assert found.dtype == gradient.dtype == dtype and gathered[0].dtype == wide
    near = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2e-2}[dtype]
    pairs = [(found, expected), (gradient, expected_grads[0]), *zip(running, expected_running)]
    pairs += [(weight_grad, expected_grads[1]), (bias_grad, expected_grads[2])] if affine else []
    for actual, reference in pairs:
        torch.testing.assert_close(actual.cpu().double(), reference, rtol=near, atol=near)


def test_gradients_that_nobody_wants_are_left_out(device: str) -> None:
    x = torch.ones(2, 3, device=device)
    mean, invstd = aten.batch_norm_stats(x, EPS)
    found = aten.batch_norm_backward_reduce(x, x, mean, invstd, None, False, False, True)
    assert found[:3] == (None, None, None) and found[3].tolist() == [2, 2, 2]
