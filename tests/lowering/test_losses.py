"""Losses, distances and their gradients against CPU PyTorch."""

from __future__ import annotations

import math

import pytest
import torch

from tests.lowering.agree import Case, label, run, unexercised
from tests.lowering.evaluate import evaluate
from torus.backend.lowering import losses

aten = torch.ops.aten


def randn(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


X, T, W = randn(4, 5), randn(4, 5, seed=1), randn(4, 5, seed=2).abs()
P, Q = torch.sigmoid(X), torch.sigmoid(T)
EDGES = torch.tensor([[0.0, 1.0, 0.5], [1.0, 0.0, 1e-30]])
SIGNS = T.sign()
REDUCTIONS = (0, 1, 2)


def grad(reduction: int, shape: torch.Size = X.shape) -> torch.Tensor:
    return randn(*shape, seed=3) if reduction == 0 else torch.tensor(1.7)


DIFFERENCES: list[Case] = [
    case
    for r in REDUCTIONS
    for g in [grad(r)]
    for case in [
        (aten.mse_loss.default, X, T, r),
        (aten.mse_loss_backward.default, g, X, T, r),
        (aten.smooth_l1_loss.default, X, T, r, 0.7),
        (aten.smooth_l1_loss_backward.default, g, X, T, r, 0.7),
        (aten.huber_loss.default, X, T, r, 0.7),
        (aten.huber_loss_backward.default, g, X, T, r, 0.7),
        (aten.soft_margin_loss.default, X, SIGNS, r),
        (aten.soft_margin_loss_backward.default, g, X, SIGNS, r),
        (aten.binary_cross_entropy.default, P, Q, W, r),
        (aten.binary_cross_entropy_backward.default, g, P, Q, W, r),
        (aten.binary_cross_entropy_with_logits.default, X * 50, Q, W, randn(5).abs(), r),
    ]
] + [
    (aten.mse_loss.default, X.bfloat16(), T.bfloat16(), 1),
    (aten.mse_loss.default, X.double(), T.double(), 1),
    (aten.mse_loss.default, torch.zeros(0), torch.zeros(0), 1),
    (aten.smooth_l1_loss.default, X, T, 1, 0.0),
    (aten.binary_cross_entropy.default, EDGES, EDGES.flip(0), None, 0),
    (aten.binary_cross_entropy_backward.default, torch.ones(2, 3), EDGES, EDGES.flip(0), None, 0),
    (aten.binary_cross_entropy_with_logits.default, X, Q),
]

LOGS = torch.log_softmax(randn(4, 6), 1)
IMAGE_LOGS = torch.log_softmax(randn(2, 6, 3, 2), 1)
LABELS = torch.tensor([5, 0, -100, 2])
IMAGE_LABELS = torch.tensor([[[0, 1], [-100, 3], [5, 5]]] * 2)
CLASS_WEIGHTS = randn(6, seed=4).abs()

NEGATIVE_LIKELIHOOD: list[Case] = [
    case
    for r in REDUCTIONS
    for w in (None, CLASS_WEIGHTS)
    for total in [torch.tensor(3.5)]
    for case in [
        (aten.nll_loss_forward.default, LOGS, LABELS, w, r, -100),
        (aten.nll_loss_backward.default, grad(r, LABELS.shape), LOGS, LABELS, w, r, -100, total),
        (aten.nll_loss2d_forward.default, IMAGE_LOGS, IMAGE_LABELS, w, r, -100),
        (aten.nll_loss2d_backward.default, grad(r, IMAGE_LABELS.shape), IMAGE_LOGS, IMAGE_LABELS, w, r, -100, total),
    ]
] + [
    (aten.nll_loss_forward.default, LOGS[0], torch.tensor(3), None, 1, -100),
    (aten.nll_loss_forward.default, LOGS.bfloat16(), LABELS, None, 1, -100),
    (aten.nll_loss_forward.default, LOGS, torch.full((4,), 2), CLASS_WEIGHTS, 1, 2),
    (aten.nll_loss_backward.default, torch.tensor(2.0), LOGS[0], torch.tensor(3), None, 1, -100, torch.tensor(1.0)),
]

CLASSES = torch.tensor([3, 0, 4, 2])
LABEL_LISTS = torch.tensor([[3, 0, -1, 1, 2], [4, -1, 0, 0, 0], [-1, 0, 0, 0, 0], [0, 1, 2, 3, 4]])
IS_TARGET = aten.multilabel_margin_loss_forward.default(X, LABEL_LISTS, 0)[1]

MARGINS: list[Case] = [
    case
    for r in REDUCTIONS
    for g in [grad(r, torch.Size([4]))]
    for case in [
        (aten.multi_margin_loss.default, X, CLASSES, 1, 0.8, None, r),
        (aten.multi_margin_loss.default, X, CLASSES, 2, 1.0, W[0], r),
        (aten.multi_margin_loss_backward.default, g, X, CLASSES, 1, 0.8, None, r),
        (aten.multi_margin_loss_backward.default, g, X, CLASSES, 2, 1.0, W[0], r),
        (aten.multilabel_margin_loss_forward.default, X, LABEL_LISTS, r),
        (aten.multilabel_margin_loss_backward.default, g, X, LABEL_LISTS, r, IS_TARGET),
    ]
] + [
    (aten.multi_margin_loss.default, X[0], torch.tensor([1])),
    (aten.multilabel_margin_loss_forward.default, X[0], LABEL_LISTS[0], 1),
    (aten.multilabel_margin_loss_forward.default, torch.tensor(0.5), torch.tensor(0), 1),
]

POINTS, CENTRES = randn(2, 4, 3), randn(2, 5, 3, seed=1)
CENTRES[:, 0] = POINTS[:, 0]

DISTANCES: list[Case] = [
    case
    for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf)
    for d in [torch.cdist(POINTS, CENTRES, p, compute_mode="donot_use_mm_for_euclid_dist")]
    for case in [
        (aten._cdist_forward.default, POINTS, CENTRES, p, 2),
        (aten._cdist_backward.default, randn(2, 4, 5), POINTS, CENTRES, p, d),
        (aten._pdist_forward.default, POINTS[0], p),
        (aten._pdist_backward.default, randn(6), POINTS[0], p, torch.pdist(POINTS[0], p)),
    ]
]
NO_BATCH = torch.ones(0, 4, 5)
DISTANCES.append((aten._cdist_backward.default, NO_BATCH, POINTS[0], CENTRES[:0], 2.0, NO_BATCH))
CASES = DIFFERENCES + NEGATIVE_LIKELIHOOD + MARGINS + DISTANCES


@pytest.mark.parametrize("case", CASES, ids=label)
def test_loss(case: Case) -> None:
    run(case)


def test_euclidean_distance_is_not_expanded_into_a_product() -> None:
    x = 1e4 + randn(3, 4)
    torch.testing.assert_close(
        evaluate(aten._euclidean_dist.default, x, x[:2]).double(), torch.cdist(x.double(), x[:2].double())
    )


def test_every_rule_has_a_case() -> None:
    assert not unexercised(losses, [aten._euclidean_dist.default, *(case[0] for case in CASES)])
