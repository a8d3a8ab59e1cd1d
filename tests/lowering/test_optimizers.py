"""Fused optimizer steps against PyTorch's CPU kernels, and gradient scaling against its definition."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.lowering.agree import unexercised
from tests.lowering.evaluate import evaluate
from torus.backend.lowering import optimizers

pytestmark = pytest.mark.slow

aten = torch.ops.aten
Lists = list[list[torch.Tensor]]


def tensors(seed: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, 3, generator=generator).to(dtype) for n in (2, 5)]


def steps(value: float) -> list[torch.Tensor]:
    return [torch.tensor(value), torch.tensor(value)]


def check(name: str, lists: Lists, overload: str = "default", frozen: int | None = None, **options: Any) -> None:
    """Compare the functional rule with the in-place CPU kernel. `frozen`: the list that neither writes."""
    functional = getattr(getattr(aten, name), overload)
    in_place = getattr(getattr(aten, name + "_"), overload)
    expected = [[t.clone() for t in column] for column in lists]
    in_place(*expected, **options)
    written = [t for i, column in enumerate(expected) if i != frozen for t in column]
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if lists[0][0].dtype == torch.float32 else {}
    torch.testing.assert_close(evaluate(functional, *lists, **options), written, **tolerance)


SGD = {
    "weight_decay": 0.0,
    "momentum": 0.0,
    "lr": 0.1,
    "dampening": 0.0,
    "nesterov": False,
    "maximize": False,
    "is_first_step": False,
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight_decay": 0.01, "maximize": True},
        {"momentum": 0.9, "dampening": 0.1},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        {"momentum": 0.9, "is_first_step": True},
    ],
    ids=str,
)
def test_fused_sgd(options: dict[str, Any]) -> None:
    buffers = tensors(2) if "momentum" in options else []
    check("_fused_sgd", [tensors(0), tensors(1), buffers], **SGD | options)


def test_fused_sgd_with_a_tensor_rate() -> None:
    check("_fused_sgd", [tensors(0), tensors(1), []], "tensor_lr", **SGD | {"lr": torch.tensor(0.05)})


def adam_lists(amsgrad: bool, dtype: torch.dtype = torch.float32, step: float = 3.0) -> Lists:
    squares = [t * t for t in tensors(3, dtype)]
    largest = [t * 0.5 for t in squares] if amsgrad else []
    return [tensors(0, dtype), tensors(1, dtype), tensors(2, dtype), squares, largest, steps(step)]


ADAM = {
    "lr": 1e-2,
    "beta1": 0.9,
    "beta2": 0.999,
    "weight_decay": 0.0,
    "eps": 1e-8,
    "amsgrad": False,
    "maximize": False,
}


@pytest.mark.parametrize("name", ["_fused_adam", "_fused_adamw"])
@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1, "amsgrad": True}, {"maximize": True}], ids=str)
def test_fused_adam(name: str, options: dict[str, Any]) -> None:
    check(name, adam_lists("amsgrad" in options), frozen=5, **ADAM | options)


@pytest.mark.parametrize("name", ["_fused_adam", "_fused_adamw"])
def test_fused_adam_with_a_tensor_rate_in_float64(name: str) -> None:
    lists = adam_lists(False, torch.float64)
    check(
        name,
        lists,
        "tensor_lr",
        frozen=5,
        **ADAM | {"lr": torch.tensor(0.02, dtype=torch.float64), "weight_decay": 0.1},
    )


def test_bias_correction_is_exact_at_the_first_step() -> None:
    zeros = [torch.zeros(3)]
    lists = [[torch.ones(3)], [torch.tensor([1e-3, -2.0, 5.0])], zeros, zeros, [], [torch.tensor(1.0)]]
    param, *_ = evaluate(aten._fused_adam.default, *lists, **ADAM)
    torch.testing.assert_close(param, 1 - 1e-2 * torch.tensor([1.0, -1.0, 1.0]), rtol=2e-7, atol=0)


@pytest.mark.parametrize("overload", ["default", "tensor_lr"])
def test_fused_adagrad(overload: str) -> None:
    lists = [tensors(0), tensors(1), [t * t for t in tensors(2)], steps(4.0)]
    options = {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.1, "eps": 1e-10, "maximize": False}
    if overload == "tensor_lr":
        options["lr"] = torch.tensor(0.1)
    check("_fused_adagrad", lists, overload, frozen=3 if overload == "tensor_lr" else None, **options)


def test_gradients_come_back_unscaled() -> None:
    options = ADAM | {"grad_scale": torch.tensor(4.0), "found_inf": torch.tensor(0.0)}
    check("_fused_adamw", adam_lists(False), frozen=5, **options)


def test_an_overflow_changes_nothing() -> None:
    lists = [tensors(0), tensors(1), tensors(2)]
    options = SGD | {"momentum": 0.9, "grad_scale": torch.tensor(4.0), "found_inf": torch.tensor(1.0)}
    results = evaluate(aten._fused_sgd.default, *lists, **options)
    torch.testing.assert_close(results, [t for column in lists for t in column], rtol=0, atol=0)


@pytest.mark.parametrize("bad", [None, math.inf, math.nan], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_unscale(bad: float | None, dtype: torch.dtype) -> None:
    grads = tensors(0, dtype)
    if bad is not None:
        grads[1][0, 0] = bad
    *unscaled, found = evaluate(
        aten._amp_foreach_non_finite_check_and_unscale.default, grads, torch.tensor(0.0), torch.tensor(0.25)
    )
    assert found == (bad is not None)
    torch.testing.assert_close(unscaled, [g * 0.25 for g in grads], equal_nan=True)


@pytest.mark.parametrize(
    ("scale", "tracker", "found", "expected"),
    [(4.0, 0, 0.0, (4.0, 1)), (4.0, 1, 0.0, (8.0, 0)), (4.0, 1, 1.0, (2.0, 0)), (3e38, 1, 0.0, (3e38, 0))],
)
def test_update_scale(scale: float, tracker: int, found: float, expected: tuple[float, int]) -> None:
    state = torch.tensor(scale), torch.tensor(tracker, dtype=torch.int32)
    results = evaluate(aten._amp_update_scale.default, *state, torch.tensor(found), 2.0, 0.5, 2)
    assert (results[0].item(), results[1].item()) == (pytest.approx(expected[0]), expected[1])


def test_every_rule_is_exercised() -> None:
    ops = [
        aten._fused_sgd.default,
        aten._fused_sgd.tensor_lr,
        aten._fused_adam.default,
        aten._fused_adam.tensor_lr,
        aten._fused_adamw.default,
        aten._fused_adamw.tensor_lr,
        aten._fused_adagrad.default,
        aten._fused_adagrad.tensor_lr,
        aten._amp_foreach_non_finite_check_and_unscale.default,
        aten._amp_update_scale.default,
    ]
    assert not unexercised(optimizers, ops)
