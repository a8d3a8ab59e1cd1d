"""DeepLIFT by op: sums are complete for whatever ops a model is made of, and rules are what they say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import library, nn

from tests.explain.graphs import RandomGraph
from torus.explain import explain, model_function
from torus.explain.certificate import completeness_gap
from torus.explain.methods import Run
from torus.explain.relevance.methods import deeplift


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def images(*last: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), *last, nn.Flatten(), nn.LazyLinear(3))


def rows(*middle: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), *middle, nn.LazyLinear(3))


RELU = nn.ReLU()
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "A1": (lambda: images(nn.MaxPool2d(2)), (3, 2, 8, 8)),
    "A2": (lambda: images(nn.MaxPool2d(3, stride=1)), (3, 2, 8, 8)),
    "padded, dilated": (lambda: images(nn.MaxPool2d(3, 2, padding=1, dilation=2)), (3, 2, 9, 9)),
    "adaptive": (lambda: images(nn.AdaptiveMaxPool2d(3), nn.LPPool2d(2, 2)), (3, 2, 8, 8)),
    "A3 functional": (lambda: rows(Call(F.relu)), (3, 6)),
    "A3 reused": (lambda: rows(RELU, nn.Linear(8, 8), RELU), (3, 6)),
    "A4": (lambda: rows(nn.Tanh(), nn.Linear(8, 4), nn.Softmax(-1)), (4, 6)),
    "A5 GELU": (lambda: rows(nn.GELU()), (3, 6)),
    "A5 SiLU": (lambda: rows(nn.SiLU()), (3, 6)),
    "norms": (
        lambda: images(nn.GroupNorm(2, 4), nn.BatchNorm2d(4), nn.InstanceNorm2d(4), nn.AvgPool2d(2)),
        (3, 2, 8, 8),
    ),
    "lstm": (lambda: nn.Sequential(nn.LSTM(4, 5, batch_first=True), Call(lambda o: o[0][:, -1])), (3, 5, 4)),
    "gru": (lambda: nn.Sequential(nn.GRU(4, 5, batch_first=True), Call(lambda o: o[0][:, -1])), (3, 5, 4)),
    "transformer": (
        lambda: nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), Call(lambda o: o.mean(1))),
        (3, 5, 8),
    ),
    "fft": (lambda: Call(lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2j) * x), (3, 8)),
    "determinant": (lambda: Call(lambda x: torch.linalg.det(x.view(-1, 3, 3))[:, None].expand(-1, 2)), (3, 9)),
}


def made(name: str, dtype: torch.dtype) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    build, shape = MODELS[name]
    x, b = torch.randn(2, *shape)
    model = build().eval()
    with torch.no_grad():
        model(x)
    return model.to(dtype), x.to(dtype), b.to(dtype)


@pytest.mark.parametrize("name", MODELS)
def test_sums_are_complete(name: str, seed: int) -> None:
    for dtype, most in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        torch.manual_seed(6)
        model, x, b = made(name, dtype)
        found = explain(model, x, 1, method="deeplift", baselines=b)
        gap = found.certificate.completeness_gap
        assert gap is not None
        assert gap <= most, (dtype, gap)
        assert not found.certificate.without_rule


def test_200_random_graphs_are_complete() -> None:
    """The model has float32 weights; the float32 walk of a graph with a small divisor has rounding of its own."""
    native = []
    for number in range(200):
        graph = RandomGraph(number, length=7).eval()
        x, b = torch.randn(2, 2, 6, generator=torch.Generator().manual_seed(number))
        function = model_function(graph, x)
        exact = deeplift(function, (x,), (b,), Run(), dtype=torch.float64)
        assert not exact.without_rule
        gap = completeness_gap(exact)
        assert gap is not None
        assert gap.max() <= 1e-11, (number, graph.plan)
        if number % 10 == 0:
            native.append(completeness_gap(deeplift(function, (x,), (b,), Run())))
    gaps = torch.stack([gap.max() for gap in native if gap is not None])
    assert gaps.quantile(0.9) <= 1e-5
    assert gaps.median() <= 1e-6


@pytest.mark.parametrize("number", range(40))
def test_close_to_the_baseline_multipliers_are_the_gradient(number: int) -> None:
    graph = RandomGraph(number, length=7).double().eval()
    x, way = torch.randn(2, 2, 6, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
    step = 1e-5 * way
    found = explain(graph, x + step / 2, method="deeplift", baselines=x - step / 2)
    _, (gradient,) = model_function(graph, x).grad((x,))
    torch.testing.assert_close(found.attribution, gradient * step, rtol=1e-5, atol=1e-9 * float(gradient.abs().max()))


def test_an_example_alone_is_as_in_a_batch(seed: int) -> None:
    for name in ("A4", "A2", "transformer"):
        model, x, b = made(name, torch.float64)
        together = explain(model, x, 1, method="deeplift", baselines=b).attribution
        alone = [
            explain(model, x[i : i + 1], 1, method="deeplift", baselines=b[i : i + 1]).attribution for i in range(3)
        ]
        torch.testing.assert_close(torch.cat(alone), together[:3], rtol=1e-10, atol=1e-12)


def test_the_rescale_rule(seed: int) -> None:
    first, last = nn.Linear(6, 8).double(), nn.Linear(8, 1).double()
    x, b = torch.randn(2, 3, 6, dtype=torch.float64)
    h, h_b = first(x), first(b)
    slope = (h.relu() - h_b.relu()) / (h - h_b)
    expected = (x - b) * ((last.weight * slope) @ first.weight)
    found = explain(nn.Sequential(first, nn.ReLU(), last), x, 0, method="deeplift", baselines=b)
    torch.testing.assert_close(found.attribution, expected.detach())


def shapley_on_the_way(
    function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    """Integrated gradients with so many steps that kinks do not matter."""
    steps = (torch.arange(20_000, dtype=x.dtype) + 0.5) / 20_000
    at = (b + steps[:, None] * (x - b)).requires_grad_()
    (gradient,) = torch.autograd.grad(function(at).sum(), at)
    return gradient.mean(0) * (x - b)


@pytest.mark.parametrize(
    "function",
    [
        lambda t: t[:, 0] * t[:, 1],
        lambda t: torch.maximum(t[:, 0], t[:, 1]),
        lambda t: t.amin(1),
        lambda t: t.max(1).values,
        lambda t: t.cummin(1).values[:, 1],
        lambda t: F.max_pool1d(t[:, None], 2)[:, 0, 0],
        lambda t: t.prod(1),
        lambda t: t[:, 0].sin(),
        lambda t: torch.linalg.det(torch.stack([t, t.flip(1) + 1], 1)),
    ],
)
def test_single_ops_have_the_values_of_the_straight_way(function: Callable, seed: int) -> None:
    x, b = torch.tensor([[1.5, -0.2]], dtype=torch.float64), torch.tensor([[-0.7, 0.9]], dtype=torch.float64)
    found = explain(Call(function), x, method="deeplift", baselines=b)
    torch.testing.assert_close(found.attribution[0], shapley_on_the_way(function, x[0], b[0]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 300.0])
def test_softmax_and_norms_at_extremes_are_finite_and_complete(scale: float, seed: int) -> None:
    x, b = scale * torch.randn(2, 3, 6, dtype=torch.float64)
    for function in (
        lambda t: t.softmax(-1)[:, 0] + t.log_softmax(-1)[:, 1] + t.logsumexp(-1),
        lambda t: F.layer_norm(t, (6,), eps=1e-12)[:, 0] + F.normalize(t, dim=1)[:, 2],
        lambda t: t[:, 0] / (1 + t[:, 1].abs()) + t[:, 2] / t[:, 3],
    ):
        for base in (b, torch.zeros_like(b) + 1e-9):
            found = explain(Call(function), x, method="deeplift", baselines=base)
            assert found.attribution.isfinite().all()
            assert (found.attribution.sum(1) - (found.values - found.baseline_values)).abs().max() <= 1e-10 * max(
                1.0, float(found.attribution.abs().max())
            )


def test_masked_attention_scores_are_finite(seed: int) -> None:
    hidden = torch.ones(4, 4, dtype=torch.bool).triu(1)

    def attended(t: torch.Tensor) -> torch.Tensor:
        return (t @ t.mT).masked_fill(hidden, -torch.inf).softmax(-1)[:, 2, 1]

    found = explain(Call(attended), torch.randn(2, 4, 3), method="deeplift", baselines=torch.randn(2, 4, 3))
    assert found.certificate.completeness_gap is not None
    assert found.certificate.completeness_gap <= 1e-5


def test_references_are_averaged(seed: int) -> None:
    model, x, _ = made("A5 GELU", torch.float64)
    references = torch.randn(4, 6, dtype=torch.float64)
    each = [explain(model, x, 0, method="deeplift", baselines=r.expand(3, 6)).attribution for r in references]
    found = explain(model, x, 0, method="deeplift", references=references)
    torch.testing.assert_close(found.attribution, torch.stack(each).mean(0))
    assert found.certificate.completeness_gap is not None
    assert found.certificate.completeness_gap <= 1e-12
    with pytest.raises(ValueError, match="do not fit"):
        explain(model, x, 0, method="deeplift", references=torch.zeros(4, 5))


@library.custom_op("torus_tests::bent", mutates_args=())
def bent(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0.3, 2 * x, x * x + 0.51)


bent.register_autograd(
    lambda ctx, grad: (
        grad * torch.where(ctx.saved_tensors[0] > 0.3, torch.full_like(grad, 2.0), 2 * ctx.saved_tensors[0])
    ),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def test_an_op_without_a_rule_is_named_and_complete_all_the_same(seed: int) -> None:
    model = nn.Sequential(nn.Linear(6, 8), Call(bent), nn.Linear(8, 3))
    found = explain(model, torch.randn(3, 6), 0, method="deeplift", baselines=torch.randn(3, 6))
    assert found.certificate.without_rule == ("torus_tests.bent.default",)
    assert found.certificate.completeness_gap is not None
    assert found.certificate.completeness_gap <= 1e-5
    assert found.certificate.passed


def test_a_sum_that_is_missed_is_put_down_to_the_op() -> None:
    table = torch.tensor([1.0, 5.0, -2.0])
    model = Call(lambda x: table[x.argmax(1)] + x.sum(1))
    x, b = torch.tensor([[0.0, 1.0, 0.5]]), torch.tensor([[1.0, 0.0, 0.5]])
    certificate = explain(model, x, method="deeplift", baselines=b).certificate
    assert not certificate.passed
    assert "aten.index.Tensor" in certificate.verdict


def test_nothing_to_explain_is_zero() -> None:
    found = explain(Call(lambda x: torch.ones(len(x))), torch.ones(2, 3), method="deeplift")
    assert not found.attribution.any()


@pytest.mark.parametrize("mode", ["strict", "fused", "compiled"])
def test_on_the_device(mode: str, device: str, seed: int) -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)).eval()
    x, b = torch.randn(2, 3, 6)
    expected = explain(model, x, 1, method="deeplift", baselines=b, dtype=torch.float64).attribution
    found = explain(model.to(device), x.to(device), 1, method="deeplift", baselines=b.to(device), mode=mode)
    torch.testing.assert_close(found.attribution.cpu(), expected.float(), rtol=2e-6, atol=1e-6)
    assert found.certificate.completeness_gap is not None
    assert found.certificate.completeness_gap <= 1e-5
