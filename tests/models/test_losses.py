"""The losses of PyTorch, forward and backward, with each reduction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.models.compare import assert_all_near, move

Case = tuple[Callable[..., Tensor], list[Any], dict[str, Any]]


def reals(*shape: int) -> Tensor:
    return torch.randn(*shape)


def unit(*shape: int) -> Tensor:
    """Strictly between 0 and 1."""
    return torch.rand(*shape) * 0.8 + 0.1


def signs(*shape: int) -> Tensor:
    return torch.where(torch.rand(*shape) > 0.5, 1.0, -1.0)


def classes(*shape: int, ignored: bool = False) -> Tensor:
    labels = torch.randint(5, shape)
    if ignored:
        labels.view(-1)[0] = -100
    return labels


CASES: dict[str, Callable[[], Case]] = {
    "mse": lambda: (F.mse_loss, [reals(6, 4), reals(6, 4)], {}),
    "l1": lambda: (F.l1_loss, [reals(6, 4), reals(6, 4)], {}),
    "smooth-l1": lambda: (F.smooth_l1_loss, [reals(6, 4), reals(6, 4)], {"beta": 0.7}),
    "huber": lambda: (F.huber_loss, [reals(6, 4), reals(6, 4)], {"delta": 0.7}),
    "cross-entropy": lambda: (F.cross_entropy, [reals(6, 5), classes(6)], {}),
    "cross-entropy-weighted": lambda: (F.cross_entropy, [reals(6, 5), classes(6, ignored=True)], {"weight": unit(5)}),
    "cross-entropy-smoothed": lambda: (F.cross_entropy, [reals(6, 5), classes(6)], {"label_smoothing": 0.1}),
    "cross-entropy-soft": lambda: (F.cross_entropy, [reals(6, 5), unit(6, 5).softmax(1)], {}),
    "cross-entropy-pixels": lambda: (F.cross_entropy, [reals(2, 5, 3, 4), classes(2, 3, 4, ignored=True)], {}),
    "nll": lambda: (F.nll_loss, [reals(6, 5).log_softmax(1), classes(6, ignored=True)], {}),
    "bce": lambda: (F.binary_cross_entropy, [unit(6, 4), unit(6, 4)], {"weight": unit(4)}),
    "bce-logits": lambda: (
        F.binary_cross_entropy_with_logits,
        [reals(6, 4), unit(6, 4)],
        {"weight": unit(6, 4), "pos_weight": unit(4)},
    ),
    "kl-div": lambda: (F.kl_div, [reals(6, 5).log_softmax(1), unit(6, 5)], {}),
    "kl-div-log": lambda: (F.kl_div, [reals(6, 5).log_softmax(1), reals(6, 5).log_softmax(1)], {"log_target": True}),
    "poisson": lambda: (F.poisson_nll_loss, [reals(6, 4), unit(6, 4) * 5], {"full": True}),
    "gaussian": lambda: (F.gaussian_nll_loss, [reals(6, 4), reals(6, 4), unit(6, 4)], {}),
    "hinge-embedding": lambda: (F.hinge_embedding_loss, [reals(6, 4), signs(6, 4)], {}),
    "margin-ranking": lambda: (F.margin_ranking_loss, [reals(6), reals(6), signs(6)], {"margin": 0.2}),
    "soft-margin": lambda: (F.soft_margin_loss, [reals(6, 4), signs(6, 4)], {}),
    "multi-margin": lambda: (F.multi_margin_loss, [reals(6, 5), classes(6)], {}),
    "multilabel-margin": lambda: (
        F.multilabel_margin_loss,
        [reals(2, 4), torch.tensor([[3, 0, -1, 1], [2, -1, 0, 0]])],
        {},
    ),
    "multilabel-soft-margin": lambda: (F.multilabel_soft_margin_loss, [reals(6, 4), unit(6, 4).round()], {}),
    "cosine-embedding": lambda: (F.cosine_embedding_loss, [reals(6, 4), reals(6, 4), signs(6)], {"margin": 0.1}),
    "triplet": lambda: (F.triplet_margin_loss, [reals(6, 4), reals(6, 4), reals(6, 4)], {"swap": True}),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss")
def test_loss(case: str, reduction: str) -> None:
    check_loss(*CASES[case](), reduction)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ctc(reduction: str) -> None:
    lengths = [torch.tensor([9, 8, 9]), torch.tensor([4, 2, 3])]
    check_loss(F.ctc_loss, [reals(9, 3, 5).log_softmax(2), torch.randint(1, 5, (3, 4)), *lengths], {}, reduction)


def check_loss(loss: Callable[..., Tensor], arguments: list[Any], options: dict[str, Any], reduction: str) -> None:
    """Value and gradient by the first argument on the device are those of float64 on the CPU."""

    def run(device: str, dtype: torch.dtype) -> dict[str, Tensor]:
        moved = [move(a, device, dtype) for a in arguments]
        named = {key: move(value, device, dtype) for key, value in options.items()}
        moved[0].requires_grad_()
        value = loss(*moved, **named, reduction=reduction)
        # Not all ones, so that a gradient that ignores the incoming one shows.
        value.backward(torch.linspace(0.5, 2, value.numel(), dtype=dtype).reshape(value.shape).to(device))
        return {"loss": value.detach().cpu(), "gradient": moved[0].grad.cpu()}

    assert_all_near(run("tpu", torch.float32), run("cpu", torch.float64))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_all_labels_ignored(reduction: str) -> None:
    """PyTorch's mean over nothing is NaN, its sum 0, and no gradient flows."""
    results = []
    for device in ("cpu", "tpu"):
        x = torch.ones(2, 5, device=device, requires_grad=True)
        loss = F.cross_entropy(x, torch.full((2,), -100, device=device), reduction=reduction)
        loss.sum().backward()
        results.append((loss.detach().cpu(), x.grad.cpu()))
    for host, device in zip(*results):
        torch.testing.assert_close(device, host, rtol=0, atol=0, equal_nan=True)


def test_label_out_of_range_raises() -> None:
    scores, labels = torch.randn(2, 5, device="tpu"), torch.tensor([1, 5], device="tpu")
    with pytest.raises(IndexError, match="5"):
        F.cross_entropy(scores, labels).item()
