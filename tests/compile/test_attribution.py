"""Captum around compiled models: it registers its hooks when the model was compiled already."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from captum.attr import LayerIntegratedGradients
from transformers import BertConfig, BertForSequenceClassification

from tests.compile.compare import compiled
from torus.backend.compile.errors import CompileWarning

IDS = torch.tensor([[2, 5, 7, 9, 3]])


@pytest.mark.slow
def test_layer_integrated_gradients_of_a_compiled_bert() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForSequenceClassification(BertConfig(vocab_size=50, max_position_embeddings=32, **sizes)).eval()
    layer = model.bert.embeddings.word_embeddings

    def attributions(run: Any, device: str) -> torch.Tensor:
        ids, zeros, ones = (make(IDS).to(device) for make in (torch.clone, torch.zeros_like, torch.ones_like))
        explain = LayerIntegratedGradients(lambda ids, mask: run(ids, attention_mask=mask).logits, layer)
        given: torch.Tensor = explain.attribute(
            ids, zeros, target=1, n_steps=2, internal_batch_size=1, additional_forward_args=(ones,)
        )
        return given

    expected = attributions(model, "cpu")
    model.to("tpu")
    fast = compiled(model, fallback=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileWarning)
        fast(IDS.to("tpu"), attention_mask=torch.ones_like(IDS).to("tpu"))
        actual = attributions(fast, "tpu")
    assert expected.abs().sum() > 1e-3
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-5, atol=1e-7)
