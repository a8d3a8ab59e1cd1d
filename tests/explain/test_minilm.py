"""A sentence encoder of six layers with its real weights: attributions on the device are those of float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from benchmarks import minilm
from torus.explain import explain

pytestmark = pytest.mark.skipif(bool(minilm.missing()), reason=f"the model's packages: {minilm.missing()}")

MOST = 2e-5


class Similarity(nn.Module):
    """From ids (1, length) to how similar a sentence is to another, (1,)."""

    def __init__(self, encoder: nn.Module, other: torch.Tensor) -> None:
        super().__init__()
        self.encoder = encoder
        self.register_buffer("other", other)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = minilm.embed(self.encoder, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
        return (found * self.other).sum(1)


def ours(method: str) -> Callable[[nn.Module, nn.Module, torch.Tensor], torch.Tensor]:
    return lambda model, layer, ids: explain(model, ids, method=method, layer=layer, mode="strict").attribution


def captums(model: nn.Module, layer: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    captum = pytest.importorskip("captum.attr")
    return captum.LayerIntegratedGradients(model, layer).attribute(ids, torch.zeros_like(ids), n_steps=4)


METHODS = {"saliency": ours("saliency"), "input_x_gradient": ours("input_x_gradient"), "captum": captums}


@pytest.mark.slow
def test_it_is_as_exact_as_float32_allows(device: str) -> None:
    encoder, tokens = minilm.load()
    ids = tokens["input_ids"][:1, : int(tokens["attention_mask"][0].sum())]
    with torch.no_grad():
        other = minilm.embed(encoder, tokens)[3:]
    model = Similarity(encoder, other)
    layer = encoder.embeddings
    found = {name: method(model.to(device), layer, ids.to(device)).cpu().double() for name, method in METHODS.items()}
    for name, method in METHODS.items():
        exact = method(model.cpu().double(), layer, ids)
        assert float((found[name] - exact).abs().max() / exact.abs().max()) <= MOST, name
