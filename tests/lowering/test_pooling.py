"""Pooling and its gradients against CPU PyTorch, with the NaN, infinity and tie corners of the maxima."""

from __future__ import annotations

import math

import pytest
import torch

from tests.lowering.agree import agrees, label, run, unexercised
from tests.lowering.evaluate import evaluate
from torus.backend.lowering import pooling

pytestmark = pytest.mark.slow

aten = torch.ops.aten
NAN, INF = math.nan, math.inf


def randn(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(0))


PLANE, VOLUME = randn(2, 3, 13, 11), randn(2, 3, 7, 6, 8)
TIED = (PLANE * 2).round()
SPECIAL = TIED.clone()
SPECIAL[0, 0, 3:5, 4] = NAN
SPECIAL[1, 1] = -INF
POOL2 = aten.max_pool2d_with_indices.default
POOL3 = aten.max_pool3d_with_indices.default

MAXIMA = [
    (POOL2, SPECIAL, [2, 2]),
    (POOL2, SPECIAL, [3, 3], [2, 2], [1, 1], [1, 1], True),
    (POOL2, SPECIAL, [5, 4], [3, 2], [2, 1], [2, 1]),
    (POOL2, SPECIAL, [6, 5], [3, 2], [2, 1], [2, 1], True),
    (POOL2, SPECIAL.bfloat16()[0], [3, 3], [1, 1], [1, 1]),
    (POOL2, TIED.double(), [13, 11]),
    (POOL2, TIED.long(), [3, 3], [1, 1], [1, 1]),
    (POOL3, VOLUME, [2, 3, 2], [2, 2, 2], [1, 1, 0], [1, 1, 1], True),
    (POOL3, VOLUME[0], [3, 3, 3], [2, 2, 2], [1, 1, 1]),
]
BACKWARD = {POOL2: aten.max_pool2d_with_indices_backward.default, POOL3: aten.max_pool3d_with_indices_backward.default}
DEFAULTS = ([], [0], [1], False)


@pytest.mark.parametrize("case", MAXIMA, ids=label)
def test_max_pool(case: tuple) -> None:
    run(case)


@pytest.mark.parametrize("case", [c for c in MAXIMA if c[1].is_floating_point()], ids=label)
def test_max_pool_backward(case: tuple) -> None:
    op, x, *geometry = case
    values, indices = op(x, *geometry)
    geometry = [*geometry, *DEFAULTS[len(geometry) - 1 :]]
    g = randn(*values.shape).to(x.dtype)
    exact = BACKWARD[op](g.double(), x.double(), *geometry, indices).to(x.dtype)
    agrees(BACKWARD[op], g, x, *geometry, indices, reference=exact)


def test_max_pool_of_minus_infinity_is_minus_infinity() -> None:
    values, indices = evaluate(POOL2, torch.full((1, 1, 4, 4), -INF), [2, 2])
    assert (values == -INF).all() and indices.flatten().tolist() == [0, 2, 8, 10]


@pytest.mark.parametrize("size", [[3, 4], [1, 1], [13, 11], [5, 7], [20, 12]])
def test_adaptive_pools(size: list[int]) -> None:
    agrees(aten.adaptive_max_pool2d.default, SPECIAL, size)
    agrees(aten._adaptive_avg_pool2d.default, PLANE, size)
    g = randn(2, 3, *size)
    agrees(aten.adaptive_max_pool2d_backward.default, g, PLANE, aten.adaptive_max_pool2d(PLANE, size)[1])
    agrees(aten._adaptive_avg_pool2d_backward.default, g, PLANE)


def test_adaptive_pools_3d() -> None:
    agrees(aten.adaptive_max_pool3d.default, VOLUME, [3, 2, 5])
    agrees(aten._adaptive_avg_pool3d.default, VOLUME[0], [3, 2, 5])
    g = randn(2, 3, 3, 2, 5)
    agrees(aten.adaptive_max_pool3d_backward.default, g, VOLUME, aten.adaptive_max_pool3d(VOLUME, [3, 2, 5])[1])
    agrees(aten._adaptive_avg_pool3d_backward.default, g, VOLUME)


def test_average_leaves_infinity_in_its_own_window() -> None:
    agrees(aten._adaptive_avg_pool2d.default, SPECIAL, [5, 4])


AVERAGES = [
    (PLANE, [2, 2], [], [0, 0], False, True, None),
    (PLANE, [3, 3], [2, 2], [1, 1], True, True, None),
    (PLANE[0], [5, 4], [3, 2], [2, 1], True, False, None),
    (PLANE, [4, 4], [1, 3], [2, 1], False, True, 5),
    (PLANE.double(), [11, 10], [3, 2], [2, 1], True, False, None),
    (PLANE.bfloat16(), [3, 3], [2, 2], [1, 1], False, True, None),
    (VOLUME, [2, 3, 2], [2, 2, 2], [1, 1, 0], True, False, None),
    (VOLUME, [2, 2, 2], [2, 2, 2], [0, 0, 0], False, True, None),
]


@pytest.mark.parametrize("case", AVERAGES, ids=lambda c: f"{list(c[0].shape)}-{c[1:]}")
def test_avg_pool_and_backward(case: tuple) -> None:
    x, *geometry = case
    n = len(geometry[0])
    forward, backward = (
        (aten.avg_pool2d.default, aten.avg_pool2d_backward.default)
        if n == 2
        else (aten.avg_pool3d.default, aten.avg_pool3d_backward.default)
    )
    agrees(forward, x, *geometry)
    g = randn(*forward(x, *geometry).shape).to(x.dtype)
    agrees(backward, g, x, *geometry, reference=backward(g.double(), x.double(), *geometry).to(x.dtype))


def test_max_unpool() -> None:
    values, indices = POOL2(PLANE, [2, 2])
    agrees(aten.max_unpool2d.default, values, indices, [13, 11])
    values, indices = POOL3(VOLUME, [2, 2, 2])
    agrees(aten.max_unpool3d.default, values, indices, [7, 6, 8], [2, 2, 2], [0, 0, 0])


def test_every_rule_is_exercised() -> None:
    names = ["max_pool{}d_with_indices", "adaptive_max_pool{}d", "avg_pool{}d", "_adaptive_avg_pool{}d"]
    ops = [getattr(aten, n.format(d) + suffix).default for n in names for d in (2, 3) for suffix in ("", "_backward")]
    assert not unexercised(pooling, [*ops, aten.max_unpool2d.default, aten.max_unpool3d.default])


@pytest.mark.parametrize("sizes", [(2, 3, 9, 7), (2, 3, 9, 7, 5)], ids=str)
def test_fractional_windows_and_gradient(sizes: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    rank = len(sizes) - 2
    op, backward = (getattr(aten, f"fractional_max_pool{rank}d{suffix}").default for suffix in ("", "_backward"))
    x = torch.randn(sizes, generator=generator)
    samples = torch.rand(2, 3, rank, generator=generator)
    for outputs in ([4, 3, 2][:rank], [1, 2, 3][:rank]):
        arguments = ([3, 2, 2][:rank], outputs)
        pooled, indices = op(x, *arguments, samples)
        agrees(op, x, *arguments, samples)
        agrees(backward, pooled.cos(), x, *arguments, indices)
