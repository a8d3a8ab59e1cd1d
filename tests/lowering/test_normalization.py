"""Normalizations and their gradients against CPU PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.lowering.agree import Case, agrees, label, name, run, unexercised
from tests.lowering.evaluate import evaluate
from tests.lowering.test_kernels import NAMED
from torus.backend.lowering import normalization

aten = torch.ops.aten
BF16, F64 = torch.bfloat16, torch.float64


def randn(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


X, G = randn(4, 6, 5, 2), randn(4, 6, 5, 2, seed=1)
C, B, MEAN, VAR = randn(6, seed=2), randn(6, seed=3), randn(6, seed=4), randn(6, seed=5).square() + 0.5
EPS = 1e-5
FAR = 1e4 + torch.arange(240.0).reshape(4, 6, 5, 2) % 7


def stats(x: torch.Tensor, dim: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    mean = x.mean(dim, keepdim=True)
    return mean, (x.var(dim, correction=0, keepdim=True) + EPS).rsqrt()


LAYER: list[Case] = [
    (aten.native_layer_norm.default, torch.tensor([[1e4, 1e4 + 1, 1e4 + 2, 1e4 + 3]]), [4], None, None, EPS),
    (aten.native_layer_norm.default, X, [5, 2], randn(5, 2), randn(5, 2, seed=1), EPS),
    (aten.native_layer_norm.default, X.double(), [2], randn(2).double(), None, EPS),
    *[
        (aten.native_layer_norm_backward.default, G, X, [5, 2], *stats(X, [2, 3]), w, b, mask)
        for w, b, mask in [(randn(5, 2), randn(5, 2), [True] * 3), (None, None, [True, False, False])]
    ],
]
GROUP: list[Case] = [
    (aten.native_group_norm.default, X, C, B, 4, 6, 10, 3, EPS),
    (aten.native_group_norm.default, X.double(), None, None, 4, 6, 10, 2, EPS),
    (aten.native_group_norm.default, X[:, :, 0, 0].contiguous(), C, B, 4, 6, 1, 3, EPS),
    *[
        (
            aten.native_group_norm_backward.default,
            *(G, X, X.reshape(4, 3, -1).mean(2), (X.reshape(4, 3, -1).var(2, correction=0) + EPS).rsqrt()),
            *(w, 4, 6, 10, 3, mask),
        )
        for w, mask in [(C, [True] * 3), (None, [True, False, False])]
    ],
]
WEIGHT: list[Case] = [
    (aten._weight_norm_interface.default, X[..., 0].contiguous(), randn(4, 1, 1), 0),
    (aten._weight_norm_interface.default, X[..., 0].contiguous(), randn(1, 1, 5), 2),
    (
        aten._weight_norm_interface_backward.default,
        *(G[..., 0].contiguous(), X[..., 0].contiguous(), randn(4, 1, 1)),
        *(X[..., 0].norm(dim=(1, 2), keepdim=True), 0),
    ),
]
BATCH: list[Case] = [
    (aten._native_batch_norm_legit.no_stats, X, C, B, True, 0.1, EPS),
    (aten._native_batch_norm_legit_functional.default, X, C, B, MEAN, VAR, True, 0.1, EPS),
    (aten._batch_norm_with_update_functional.default, X, C, B, MEAN, VAR, 0.1, EPS),
    *[
        (aten.native_batch_norm_backward.default, *(G, X, w, MEAN, VAR, *saved), train, EPS, mask)
        for saved in [[s.reshape(-1) for s in stats(X, [0, 2, 3])]]
        for w, train, mask in [(C, True, [True] * 3), (None, True, [True, False, False]), (C, False, [True] * 3)]
    ],
    (
        aten.batch_norm_backward.default,
        *(G, X, C, MEAN, VAR, *[s.reshape(-1) for s in stats(X, [0, 2, 3])], True, EPS, [True] * 3),
        torch.zeros(0, dtype=torch.uint8),
    ),
]
CASES = LAYER + GROUP + WEIGHT + BATCH
IN_PLACE = [
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit.default,
    aten._batch_norm_with_update.default,
]


@pytest.mark.parametrize("case", CASES, ids=label)
def test_normalization(case: Case) -> None:
    run(case)


@pytest.mark.parametrize("op", IN_PLACE, ids=name)
@pytest.mark.parametrize("x", [X, X.bfloat16(), X.double()], ids=["float32", "bfloat16", "float64"])
def test_batch_norm_updates_its_running_statistics(op: Any, x: torch.Tensor) -> None:
    weights = [t.to(x.dtype if x.dtype == F64 else torch.float32) for t in (C, B, MEAN, VAR)]
    training = [] if op is aten._batch_norm_with_update.default else [True]
    actual = evaluate(op, x, *weights, *training, 0.1, EPS)
    weight, bias, mean, var = (t.clone() for t in weights)
    expected = [*op(x, weight, bias, mean, var, *training, 0.1, EPS), mean, var]
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_norm_of_low_precision_parameters(device: str, dtype: torch.dtype) -> None:
    def called(where: str, work: torch.dtype) -> list[torch.Tensor]:
        x, *parameters = (t.to(dtype).clone().to(where, work) for t in (X, C, B, MEAN, VAR))
        return [*aten._native_batch_norm_legit.default(x, *parameters, True, 0.1, EPS), *parameters[2:]]

    expected = [t.to(dtype) for t in called("cpu", F64)]
    torch.testing.assert_close(called(device, dtype), expected, check_device=False)


def test_an_out_form_updates_the_running_statistics(device: str) -> None:
    def called(where: str) -> list[torch.Tensor]:
        x, *parameters = (t.clone().to(where) for t in (X, C, B, MEAN, VAR))
        out, mean, invstd = (torch.zeros(0, device=where) for _ in range(3))
        aten.native_batch_norm.out(x, *parameters, True, 0.1, EPS, out=out, save_mean=mean, save_invstd=invstd)
        return [out, mean, invstd, *parameters[2:]]

    torch.testing.assert_close(called(device), called("cpu"), check_device=False)


EVALUATION = {
    aten.native_batch_norm.default: [False],
    aten._native_batch_norm_legit.default: [False],
    aten._native_batch_norm_legit_no_training.default: [],
    aten._batch_norm_no_update.default: [],
}


@pytest.mark.parametrize("op", EVALUATION, ids=name)
def test_batch_norm_in_evaluation_uses_and_keeps_the_running_statistics(op: Any) -> None:
    output, *rest = evaluate(op, X, C, B, MEAN, VAR, *EVALUATION[op], 0.1, EPS)
    torch.testing.assert_close(output, torch.nn.functional.batch_norm(X, MEAN, VAR, C, B))
    if EVALUATION[op]:
        torch.testing.assert_close(rest[2:], [MEAN, VAR])


@pytest.mark.parametrize("shape", [(4, 6, 5, 2), (1, 6, 40)])
def test_statistics_far_from_zero_are_those_of_float64(shape: tuple[int, ...]) -> None:
    x = FAR.reshape(-1)[: torch.Size(shape).numel()].reshape(shape)
    batch = evaluate(aten.native_batch_norm.default, x, None, None, None, None, True, 0.1, EPS)
    assert batch[3:] == [None, None]
    expected = torch.nn.functional.batch_norm(x.double(), None, None, training=True)
    torch.testing.assert_close(batch[0], expected.float())
    rows = shape[0], shape[1], x[0, 0].numel()
    group = evaluate(aten.native_group_norm.default, x, None, None, *rows, 2, EPS)[0]
    torch.testing.assert_close(group, torch.nn.functional.group_norm(x.double(), 2).float())
    layer = evaluate(aten.native_layer_norm.default, x, shape[1:], None, None, EPS)[0]
    torch.testing.assert_close(layer, torch.nn.functional.layer_norm(x.double(), shape[1:]).float())


def test_half_precision_layer_norm_computes_in_float32() -> None:
    x = X.bfloat16()
    output, mean, _ = evaluate(aten.native_layer_norm.default, x, [2], randn(2).bfloat16(), None, EPS)
    torch.testing.assert_close(output, torch.nn.functional.layer_norm(x, [2], randn(2).bfloat16()))
    torch.testing.assert_close(mean, x.float().mean(-1, keepdim=True))


@pytest.mark.parametrize("weight", [None, randn(2)], ids=["plain", "weighted"])
def test_rms_norm_and_its_gradient(weight: torch.Tensor | None) -> None:
    x, w = X.double().requires_grad_(), None if weight is None else weight.double().requires_grad_()
    y = torch.nn.functional.rms_norm(x, [2], w, EPS)
    inputs = [x] if w is None else [x, w]
    gradients = list(torch.autograd.grad(y, inputs, G.double())) + [None] * (w is None)
    rstd = (x.square().mean(-1, keepdim=True) + EPS).rsqrt()
    agrees(aten._fused_rms_norm.default, x.detach(), [2], w, EPS, reference=(y.detach(), rstd.detach()))
    args = (G.double(), x.detach(), [2], rstd.detach(), w, [True, w is not None])
    agrees(aten._fused_rms_norm_backward.default, *args, reference=tuple(gradients))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_rms_norm_without_epsilon_takes_that_of_the_accumulator(dtype: torch.dtype) -> None:
    x = (X * 1e-3).to(dtype)
    expected = torch.nn.functional.rms_norm(x, [2])
    torch.testing.assert_close(evaluate(aten._fused_rms_norm.default, x, [2], None, None)[0], expected)


def test_every_rule_has_a_case() -> None:
    rms = [aten._fused_rms_norm.default, aten._fused_rms_norm_backward.default]
    assert not unexercised(normalization, [*NAMED, *IN_PLACE, *EVALUATION, *rms, *(case[0] for case in CASES)])


@pytest.mark.parametrize("op", [*EVALUATION, aten._native_batch_norm_legit_functional.default], ids=name)
def test_batch_norm_in_evaluation_saves_what_it_saves_on_the_cpu(device: str, op: Any) -> None:
    flags = EVALUATION.get(op, [False])
    actual, expected = (op(*(t.to(where) for t in (X, C, B, MEAN, VAR)), *flags, 0.1, EPS) for where in (device, "cpu"))
    torch.testing.assert_close(actual, expected, check_device=False)


@pytest.mark.parametrize("name", ["_native_batch_norm_legit", "_batch_norm_with_update"])
def test_an_out_form_of_an_op_that_writes_its_arguments(device: str, name: str) -> None:
    def called(where: str) -> list[torch.Tensor]:
        x, *parameters = (t.clone().to(where) for t in (X, C, B, MEAN, VAR))
        out = {key: torch.zeros(0, device=where) for key in ("out", "save_mean", "save_invstd")}
        flags, last = ([], {"reserve": out["out"].byte()}) if "update" in name else ([True], {})
        getattr(aten, name).out(x, *parameters, *flags, 0.1, EPS, **out, **last)
        return [*out.values(), *parameters[2:]]

    torch.testing.assert_close(called(device), called("cpu"), check_device=False)
