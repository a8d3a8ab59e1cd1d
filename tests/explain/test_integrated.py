"""Integrated gradients against closed forms, dense float64 quadrature and their own estimates of the error."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.eager.fusing import running
from torus.explain import Explanation, explain, model_function


def net(activation: type[nn.Module], width: int = 24, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    layers = [nn.Linear(6, width), activation(), nn.Linear(width, width), activation(), nn.Linear(width, 3)]
    return nn.Sequential(*layers).eval()


def inputs(rows: int = 3, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return 2 * torch.randn(rows, 6, generator=torch.Generator().manual_seed(1)).to(dtype)


def explained(model: object, x: torch.Tensor, target: object = 1, **options: object) -> Explanation:
    return explain(model, x, target, method="integrated_gradients", **options)  # type: ignore[arg-type]


def dense(model: nn.Module, x: torch.Tensor, baseline: torch.Tensor, target: int, steps: int = 8000) -> torch.Tensor:
    """The middle rule with many steps, in float64, summed in pieces."""
    function = model_function(model.double(), x.double(), target)
    base, total = baseline.double().expand_as(x), torch.zeros_like(x, dtype=torch.float64)
    for parts in ((torch.arange(steps, dtype=torch.float64) + 0.5) / steps).split(1000):
        points = (base + parts[:, None, None] * (x.double() - base)).flatten(0, 1)
        total += function.grad((points,))[1][0].view(len(parts), *x.shape).sum(0)
    model.float()
    return total * (x.double() - base) / steps


def test_float64_is_exact_to_its_last_digits() -> None:
    """x0^3 x1 + sin(x1) from 0: the integrals are known."""
    x = torch.tensor([[1.5, -0.7], [-2.0, 0.3]], dtype=torch.float64)
    found = explained(lambda p: p[:, 0] ** 3 * p[:, 1] + torch.sin(p[:, 1]), x, None, tol=1e-14)
    product = x[:, 0] ** 3 * x[:, 1]
    exact = torch.stack([product * 3 / 4, product / 4 + torch.sin(x[:, 1])], 1)
    torch.testing.assert_close(found.attribution, exact, rtol=1e-14, atol=1e-15)
    assert found.certificate.completeness_gap is not None and found.certificate.completeness_gap <= 1e-14
    assert found.certificate.gradients == 2 * 60


def test_a_network_in_float64_is_complete_to_its_last_digits() -> None:
    found = explained(net(nn.Tanh).double(), inputs(dtype=torch.float64), tol=3e-14)
    assert found.certificate.passed, str(found.certificate)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU, nn.Tanh])
def test_the_error_is_at_most_what_is_stated(activation: type[nn.Module]) -> None:
    for seed in range(2):
        model, x = net(activation, seed=seed), inputs()
        exact = dense(model, x, torch.zeros(1, 6), 1)
        for tol in (1e-2, 1e-3):
            found = explained(model, x, tol=tol)
            change = (found.values - found.baseline_values).abs()
            error = ((found.attribution - exact).abs().amax(1) / change).max().item()
            assert found.certificate.passed, str(found.certificate)
            assert error <= 2 * tol + 2e-5  # the dense sum itself is this far off where gradients jump


def test_float32_reaches_what_rounding_allows() -> None:
    model, x = net(nn.ReLU, width=8), inputs(1)
    found = explained(model, x, tol=3e-5)
    exact = explained(net(nn.ReLU, width=8).double(), x.double(), tol=1e-6, most=8000)
    change = (found.values - found.baseline_values).abs().item()
    assert found.certificate.passed, str(found.certificate)
    assert (found.attribution - exact.attribution).abs().max().item() <= 6e-5 * change


class Embedded(nn.Module):
    """A root mean square norm before everything, as in language models: all that matters is beside the baseline."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mix, self.head = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return self.head(torch.tanh(3 * self.mix(normed)))


def test_what_lies_in_a_thousandth_of_the_path_is_found() -> None:
    found = explained(Embedded().eval(), inputs(), tol=1e-3)
    assert found.certificate.passed, str(found.certificate)
    assert found.certificate.gradients <= 3 * 500


def test_a_causal_language_model_converges_where_fixed_steps_do_not() -> None:
    """Embeddings of a prompt, from those of the padding token, to the raw logit of a token at the last place."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(2)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "pad_token_id": 0}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.3}
    model = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**sizes, **heads)).eval().requires_grad_(False)
    tokens = torch.randint(1, 64, (1, 8))
    pad = model.get_input_embeddings()(torch.zeros_like(tokens))
    found = explained(model, tokens, (7, 3), layer="model.embed_tokens", baselines=pad)
    assert found.certificate.passed, str(found.certificate)
    assert found.certificate.gradients <= 1000
    function = model_function(model, tokens, (7, 3), layer="model.embed_tokens")
    parts = ((torch.arange(512) + 0.5) / 512)[:, None, None]
    _, (gradient,) = function.grad((pad + parts * (found.points[0] - pad),))
    fixed = ((found.points[0] - pad) * gradient).sum() / 512
    change = found.values - found.baseline_values
    assert (fixed - change).abs() > 0.05 * change.abs()  # 9 % here


def test_a_step_has_a_verdict_with_figures() -> None:
    """A value that jumps has no gradient that could show it."""
    model = lambda p: p.sum(1) + (p.sum(1) > 0.5).to(p.dtype)  # noqa: E731
    found = explained(model, torch.ones(1, 4), None, most=600)
    assert not found.certificate.passed
    assert "example 0: completeness gap 1" in found.certificate.verdict
    assert "after 600 gradients" in found.certificate.verdict
    assert found.certificate.gradients == 600


def test_what_is_not_finite_stops_at_once() -> None:
    found = explained(lambda p: p.log().sum(1), torch.ones(2, 3), None)
    assert "not finite" in found.certificate.verdict
    assert found.certificate.gradients == 120


def test_nothing_to_explain_ends_too() -> None:
    found = explained(lambda p: p[:, 0] * 0 + 7, torch.ones(1, 3), None)
    assert found.attribution.abs().max() == 0
    assert found.certificate.gradients == 60


def test_a_tolerance_below_rounding_is_named() -> None:
    found = explained(net(nn.Tanh), inputs(), tol=1e-12)
    assert "limited by rounding" in found.certificate.verdict
    assert found.certificate.gradients == 3 * 60


def test_several_baselines_give_the_mean() -> None:
    model, x = net(nn.Tanh), inputs(2)
    references = torch.randn(4, 6, generator=torch.Generator().manual_seed(2))
    found = explained(model, x, references=references, tol=1e-5)
    each = [explained(model, x, baselines=reference[None], tol=1e-5).attribution for reference in references]
    torch.testing.assert_close(found.attribution, torch.stack(each).mean(0), rtol=1e-5, atol=1e-6)
    assert found.certificate.passed, str(found.certificate)
    with pytest.raises(ValueError, match="do not fit"):
        explained(model, x, references=torch.zeros(4, 5))


def test_several_inputs_and_a_layer() -> None:
    class Two(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a.sum(1) * b.prod(1)

    a, b = torch.rand(2, 3, dtype=torch.float64) + 1, torch.rand(2, 2, dtype=torch.float64) + 1
    found = explain(Two(), (a, b), method="integrated_gradients")
    product = b.prod(1, keepdim=True)
    torch.testing.assert_close(found.attributions[0], a * product / 3, rtol=1e-12, atol=0)
    torch.testing.assert_close(found.attributions[1], (a.sum(1, keepdim=True) * product / 3).expand(2, 2))
    model, x = net(nn.GELU), inputs()
    layer = explained(model, x, layer="1")
    assert layer.certificate.passed and layer.attribution.shape == (3, 24)
    torch.testing.assert_close(layer.attribution, explained(model[2:], layer.points[0]).attribution)


def test_calls_have_one_size_and_history_leads_to_the_result() -> None:
    model, sizes = net(nn.ReLU), set()
    progress: list[tuple[int, int]] = []
    model.register_forward_hook(lambda module, args, output: sizes.add(len(output)))
    found = explained(model, inputs(), tol=1e-3, most=900, progress=lambda *done: progress.append(done))
    assert sizes == {3, 180}  # the examples, and every piece
    assert (
        [gradients for gradients, _ in found.history]
        == [done for done, _ in progress]
        == list(range(60, 60 * len(progress) + 1, 60))
    )
    assert found.history[-1][1] <= 1e-3 < found.history[0][1]
    assert progress[-1][1] == 900


def test_chunks_change_no_bit() -> None:
    model, x = net(nn.GELU).double(), inputs(dtype=torch.float64)
    whole = explained(model, x, tol=1e-8)
    pieces = explained(model, x, tol=1e-8, chunk=60)
    assert torch.equal(whole.attribution, pieces.attribution)


@pytest.mark.parametrize("change", [{"pieces": 3}, {"pieces": 0}, {"gauss": 1}, {"most": 59}])
def test_options_that_do_not_fit_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="pieces="):
        explained(net(nn.Tanh), inputs(), **change)


def test_a_fused_call_is_three_programs_and_right(device: str) -> None:
    """Backward, measuring, and the sum with the certificate's values; one read a round."""
    model, x = net(nn.GELU, width=8), inputs()
    expected = explained(model, x, gauss=3).attribution
    model, x = model.to(device), x.to(device)
    with running("foreground"):
        explained(model, x, gauss=3, mode="fused")
        torch.tpu.synchronize()
        before = torch.tpu.counters()
        found = explained(model, x, gauss=3, mode="fused")
        spent = {name: count - before[name] for name, count in torch.tpu.counters().items()}
    assert found.certificate.gradients == 3 * 28
    assert spent["programs"] <= 3
    assert spent["host_reads"] <= 2  # the round, and the gap
    assert spent["compiles"] == 0
    torch.testing.assert_close(found.attribution.cpu(), expected, rtol=2e-5, atol=1e-6)
