"""Fake quantization against CPU PyTorch."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.agree import Case, label, run, unexercised
from torus.backend.lowering import fake_quantize

aten = torch.ops.aten

X = torch.linspace(-30, 30, 35).reshape(5, 7)
SCALE, ZERO = torch.tensor(0.13), torch.tensor(3, dtype=torch.int32)
SCALES, ZEROS = torch.linspace(0.1, 0.5, 7), torch.arange(7, dtype=torch.int32)
by_tensors = aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default
by_channel = aten.fake_quantize_per_channel_affine_cachemask.default

CASES: list[Case] = [
    (aten.fake_quantize_per_tensor_affine_cachemask.default, X, 0.13, 3, -20, 90),
    (aten.fake_quantize_per_tensor_affine_cachemask.default, X.bfloat16(), 0.125, 3, -20, 90),
    (by_tensors, X, SCALE, ZERO, torch.tensor([1]), -20, 90),
    (by_tensors, X, SCALE, ZERO, torch.tensor([0]), -20, 90),
    (by_channel, X, SCALES, ZEROS, 1, -20, 90),
    (by_channel, X, SCALES[:5], ZEROS[:5] + 0.3, 0, -20, 90),
]


@pytest.mark.parametrize("case", CASES, ids=label)
def test_levels_and_mask(case: Case) -> None:
    run(case)


GRAD = torch.linspace(-1, 1, 35).reshape(5, 7)
LEARNED, LEARNED_ZERO = torch.tensor([0.13]), torch.tensor([3.3])
ZEROS_OF_CHANNELS = torch.linspace(-2.7, 4, 7)
LEARNING: list[Case] = [
    (aten._fake_quantize_learnable_per_tensor_affine.default, X, LEARNED, LEARNED_ZERO, -20, 90, 0.5),
    (aten._fake_quantize_learnable_per_channel_affine.default, X, SCALES, ZEROS_OF_CHANNELS, 1, -20, 90, 0.5),
    (aten._fake_quantize_learnable_per_tensor_affine_backward.default, GRAD, X, LEARNED, LEARNED_ZERO, -20, 90, 0.5),
    (
        aten._fake_quantize_learnable_per_channel_affine_backward.default,
        *(GRAD, X, SCALES, ZEROS_OF_CHANNELS, 1, -20, 90, 0.5),
    ),
]


@pytest.mark.parametrize("case", LEARNING, ids=label)
def test_learned_scales(case: Case) -> None:
    run(case)


def test_every_rule_has_a_case() -> None:
    assert not unexercised(fake_quantize, [case[0] for case in CASES + LEARNING])
