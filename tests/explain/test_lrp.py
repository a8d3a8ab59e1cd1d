"""Relevance propagation by op against the papers' formulas, written out for small networks."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torus.explain import explain


def network(bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(5, 7, bias=bias), nn.ReLU(), nn.Linear(7, 6, bias=bias), nn.ReLU(), nn.Linear(6, 3, bias=bias)
    ).double()


def points(count: int = 3) -> torch.Tensor:
    return torch.randn(count, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def shares(rule: str, x: float, w: float) -> float:
    """The contribution of an input with a weight, which relevance is passed back in proportion to."""
    z = x * w
    return {"epsilon": z, "gamma": x * (w + 0.25 * max(w, 0)), "plus": max(z, 0), "minus": min(z, 0)}[rule]


def linear_backward(rule: str, layer: nn.Linear, x: torch.Tensor, relevance: torch.Tensor) -> torch.Tensor:
    """Relevance of the inputs of a linear layer, input by input."""
    if rule == "two and one":
        return 2 * linear_backward("plus", layer, x, relevance) - linear_backward("minus", layer, x, relevance)
    passed = torch.zeros_like(x)
    for j in range(layer.out_features):
        parts = [shares(rule, float(x[i]), float(layer.weight[j, i])) for i in range(layer.in_features)]
        total = sum(parts) + shares(rule, 1.0, float(layer.bias[j]))
        for i, part in enumerate(parts):
            passed[i] += part / total * relevance[j] if total else 0
    return passed


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("epsilon", {"rule": "epsilon"}),
        ("gamma", {"rule": "gamma", "gamma": 0.25}),
        ("plus", {"rule": "alpha_beta"}),
        ("two and one", {"rule": "alpha_beta", "alpha": 2.0, "beta": 1.0}),
    ],
)
def test_rules_of_weights_are_those_of_the_papers(rule: str, options: dict) -> None:
    net, x = network(), points()
    found = explain(net, x, 1, method="lrp", epsilon=0.0, **options)
    for row in range(3):
        with torch.no_grad():
            activations = [x[row]]
            for layer in net:
                activations.append(layer(activations[-1]))
            relevance = activations[-1] * F.one_hot(torch.tensor(1), 3)
            for layer, value in list(zip(net, activations, strict=False))[::-1]:
                if isinstance(layer, nn.Linear):
                    relevance = linear_backward(rule, layer, value, relevance)
        torch.testing.assert_close(found.attribution[row], relevance, rtol=1e-9, atol=1e-12)
    gap = found.certificate.completeness_gap
    assert gap is not None
    assert gap <= 1e-12


def test_all_relevance_arrives_where_there_are_no_biases() -> None:
    for options in ({}, {"rule": "gamma"}):
        found = explain(network(bias=False), points(), 1, method="lrp", epsilon=0.0, **options)
        torch.testing.assert_close(found.attribution.sum(1), found.values, rtol=1e-9, atol=1e-12)


def test_epsilon_takes_what_it_says() -> None:
    weight, x = torch.tensor([[2.0, -1.0]]).double(), torch.tensor([[1.0, 0.5]]).double()
    layer = nn.Linear(2, 1, bias=False).double()
    layer.weight.data = weight
    found = explain(layer, x, method="lrp", epsilon=0.5)
    torch.testing.assert_close(found.attribution, x * weight * 1.5 / 2.0)


def test_z_plus_of_a_convolution_is_not_negative(seed: int) -> None:
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(3, 2, 2), nn.ReLU(), nn.Flatten())
    x = torch.rand(2, 1, 7, 7)
    found = explain(net, x, lambda out: out.sum(1), method="lrp", rule="alpha_beta")
    assert found.attribution.min() >= 0
    assert found.certificate.completeness_gap is not None
    assert found.certificate.completeness_gap <= 1e-5


class Block(nn.Module):
    """One head of attention and a gate, after a norm each, with residuals."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(2)
        self.q, self.k, self.v, self.up, self.gate, self.down = (
            nn.Parameter(torch.randn(4, 4, generator=generator, dtype=torch.float64)) for _ in range(6)
        )

    @staticmethod
    def norm(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = self.norm(x)
        x = x + F.scaled_dot_product_attention(n @ self.q, n @ self.k, n @ self.v)
        n = self.norm(x)
        return x + (F.silu(n @ self.gate) * (n @ self.up)) @ self.down


def back(relevance: torch.Tensor, z: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """The share of a part of a sum."""
    return relevance * part / z


def through(weight: torch.Tensor, x: torch.Tensor, relevance: torch.Tensor) -> torch.Tensor:
    return x * ((relevance / (x @ weight)) @ weight.T)


def attn_lrp(block: Block, x: torch.Tensor, relevance: torch.Tensor) -> torch.Tensor:
    """AttnLRP's equations for one example (length, 4), from the output back."""
    n1 = block.norm(x)
    q, k, v = n1 @ block.q, n1 @ block.k, n1 @ block.v
    scores = q @ k.T / 2
    weights = scores.softmax(-1)
    attended = weights @ v
    x2 = x + attended
    n2 = block.norm(x2)
    g, u = n2 @ block.gate, n2 @ block.up
    product = F.silu(g) * u
    out = x2 + product @ block.down

    r_product = through(block.down, product, back(relevance, out, product @ block.down))
    r_n2 = through(block.gate, n2, r_product / 2) + through(block.up, n2, r_product / 2)  # the uniform rule
    r_x2 = back(relevance, out, x2) + r_n2  # the identity rule of a norm
    r_attended = back(r_x2, x2, attended)
    r_weights = torch.einsum("ij,jd,id->ij", weights, v, r_attended / attended) / 2
    r_v = torch.einsum("ij,jd,id->jd", weights, v, r_attended / attended) / 2
    r_scores = scores * (r_weights - weights * r_weights.sum(-1, keepdim=True))  # proposition 3.1
    r_q = torch.einsum("id,jd,ij->id", q, k, r_scores / scores / 2) / 2
    r_k = torch.einsum("id,jd,ij->jd", q, k, r_scores / scores / 2) / 2
    r_n1 = through(block.q, n1, r_q) + through(block.k, n1, r_k) + through(block.v, n1, r_v)
    return back(r_x2, x2, x) + r_n1


def test_attn_lrp_is_that_of_the_paper(seed: int) -> None:
    block = Block()
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    found = explain(block, x, (2, 1), method="attn_lrp", epsilon=0.0)
    with torch.no_grad():
        for row in range(2):
            relevance = torch.zeros(3, 4, dtype=torch.float64)
            relevance[2, 1] = block(x[row : row + 1])[0, 2, 1]
            torch.testing.assert_close(
                found.attribution[row], attn_lrp(block, x[row], relevance), rtol=1e-9, atol=1e-11
            )


def test_constant_attention_passes_everything_on(seed: int) -> None:
    """With attention weights and norms as constants there is nothing that takes relevance in a block without biases."""
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    found = explain(Block(), x, (2, 1), method="lrp", epsilon=0.0)
    torch.testing.assert_close(found.attribution.sum((1, 2)), found.values, rtol=1e-9, atol=1e-12)


def test_an_example_alone_is_as_in_a_batch() -> None:
    for method in ("lrp", "attn_lrp"):
        together = explain(network(), points(), 1, method=method)
        alone = [explain(network(), points()[i : i + 1], 1, method=method) for i in range(3)]
        torch.testing.assert_close(torch.cat([one.attribution for one in alone]), together.attribution)


@pytest.fixture(scope="module")
def transformers():  # type: ignore[no-untyped-def]
    return pytest.importorskip("transformers")


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["qwen", "llama", "bert"])
def test_language_models(kind: str, attention: str, transformers, seed: int) -> None:  # type: ignore[no-untyped-def]
    small = dict(
        vocab_size=30, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=16, attn_implementation=attention,
    )  # fmt: skip
    if kind == "bert":
        model, layer = transformers.BertForSequenceClassification(transformers.BertConfig(**small)), "bert.embeddings"
    elif kind == "llama":
        config = transformers.LlamaConfig(**small, num_key_value_heads=2)
        model, layer = transformers.LlamaForCausalLM(config), "model.embed_tokens"
    else:
        config = transformers.Qwen3Config(**small, num_key_value_heads=2, head_dim=8)
        model, layer = transformers.Qwen3ForCausalLM(config), "model.embed_tokens"
    ids = torch.randint(0, 30, (2, 5))
    target = 1 if kind == "bert" else (4, 7)
    given = {} if kind == "bert" else {"use_cache": False}
    for method in ("deeplift", "lrp", "attn_lrp"):
        found = explain(model.eval(), ids, target, method=method, layer=layer, arguments=given)
        assert not found.certificate.without_rule
        assert found.certificate.completeness_gap is not None
        assert found.certificate.completeness_gap <= 1e-5
        assert found.attribution.shape == (2, 5, 16)
        if method == "attn_lrp":  # not what the other methods give, for the query and key have a part
            assert found.attribution.isfinite().all()


@pytest.mark.parametrize("method", ["lrp", "attn_lrp"])
def test_on_the_device(method: str, device: str) -> None:
    expected = explain(network(), points(), 1, method=method).attribution
    found = explain(network().float().to(device), points().float().to(device), 1, method=method, mode="strict")
    torch.testing.assert_close(found.attribution.cpu(), expected.float(), rtol=2e-5, atol=1e-6)
