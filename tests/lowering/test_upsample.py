"""Resampling and its gradients against CPU PyTorch."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from tests.lowering.agree import agrees, unexercised
from tests.lowering.evaluate import evaluate
from torus.backend.lowering import upsample

pytestmark = pytest.mark.slow

aten = torch.ops.aten
SIZES = {1: (2, 3, 7), 2: (2, 3, 6, 7), 3: (2, 1, 3, 4, 5)}
OUTPUTS = {1: [[14], [5]], 2: [[12, 14], [4, 5], [9, 10], [6, 7]], 3: [[6, 3, 9]]}
NEAREST = {f"{name}{n}d": n for name in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)}
SMOOTH = {
    "upsample_linear1d": 1,
    "upsample_bilinear2d": 2,
    "upsample_bicubic2d": 2,
    "upsample_trilinear3d": 3,
    "_upsample_bilinear2d_aa": 2,
    "_upsample_bicubic2d_aa": 2,
    "_upsample_lanczos2d_aa": 2,
}


def randn(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(0))


def check(name: str, n: int, size: list[int], *options: Any) -> None:
    forward, backward = getattr(aten, name).default, getattr(aten, f"{name}_backward").default
    x = randn(*SIZES[n])
    agrees(forward, x, size, *options)
    agrees(backward, randn(*SIZES[n][:2], *size), size, list(SIZES[n]), *options)


@pytest.mark.parametrize(("name", "size"), [(name, s) for name, n in NEAREST.items() for s in OUTPUTS[n]])
def test_nearest(name: str, size: list[int]) -> None:
    check(name, NEAREST[name], size)


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize(("name", "size"), [(name, s) for name, n in SMOOTH.items() for s in OUTPUTS[n]])
def test_smooth(name: str, size: list[int], align_corners: bool) -> None:
    check(name, SMOOTH[name], size, align_corners)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_given_scales_count(dtype: torch.dtype) -> None:
    x = randn(*SIZES[2]).to(dtype)
    agrees(aten.upsample_nearest2d.default, x, [11, 12], 1.9, 1.8)
    agrees(aten.upsample_bilinear2d.default, x, [11, 12], False, 1.9, 1.8)
    agrees(aten.upsample_bicubic2d.default, x, [11, 12], False, 1.9, 1.8)


def test_other_dtypes() -> None:
    x = randn(*SIZES[2])
    agrees(aten.upsample_bilinear2d.default, x.bfloat16(), [12, 14], False)
    agrees(aten.upsample_nearest2d.default, (x * 20).abs().to(torch.uint8), [12, 15])


WINDOWS = [([3, 2], [1, 2], [1, 0], [2, 1]), ([2, 2], [1, 1], [0, 0], [2, 2])]


@pytest.mark.parametrize("window", WINDOWS)
def test_im2col_and_col2im(window: tuple) -> None:
    x = randn(*SIZES[2])
    for part in (x, x[0]):
        agrees(aten.im2col.default, part, *window)
        agrees(aten.col2im.default, randn(*aten.im2col(part, *window).shape), [6, 7], *window)


def test_col2im_of_an_empty_batch() -> None:
    agrees(aten.col2im.default, torch.zeros(0, 4, 12), [4, 5], [2, 2], [1, 1], [0, 0], [1, 1])


GRID_MODES = [*itertools.product([2], [0, 1, 2], [0, 1, 2]), *itertools.product([3], [0, 1], [2])]


@pytest.mark.parametrize(("n", "mode", "padding"), GRID_MODES)
def test_grid_sampler(n: int, mode: int, padding: int) -> None:
    x, corners = randn(*SIZES[n]), (mode + padding) % 2 == 0
    where = torch.rand(2, 3, *[4, 2][: n - 1], n, generator=torch.Generator().manual_seed(1)) * 2.6 - 1.3
    forward = getattr(aten, f"grid_sampler_{n}d").default
    agrees(forward, x, where, mode, padding, corners)
    g = randn(*SIZES[n][:2], *where.shape[1:-1])
    actual = evaluate(
        getattr(aten, f"grid_sampler_{n}d_backward").default, g, x, where, mode, padding, corners, [True] * 2
    )
    backward = getattr(aten, f"grid_sampler_{n}d_backward")
    expected = backward(g.double(), x.double(), where.double(), mode, padding, corners, [True, True])
    for a, e in zip(actual, expected):
        torch.testing.assert_close(a.double(), e, rtol=1e-4, atol=1e-4)


def test_grid_sampler_gradient_that_is_not_asked_for_is_none() -> None:
    args = (randn(2, 3, 3, 4), randn(*SIZES[2]), torch.zeros(2, 3, 4, 2), 0, 0, False)
    assert evaluate(aten.grid_sampler_2d_backward.default, *args, [False, True])[0] is None


def test_every_rule_is_exercised() -> None:
    names = [*NEAREST, *SMOOTH, "grid_sampler_2d", "grid_sampler_3d"]
    ops = [getattr(aten, name + suffix).default for name in names for suffix in ("", "_backward")]
    assert not unexercised(upsample, [*ops, aten.im2col.default, aten.col2im.default])
