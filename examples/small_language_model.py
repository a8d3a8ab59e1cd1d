"""A causal language model of a tenth of a billion parameters, with random weights, for ``torus explain bench``.

    torus explain bench examples/small_language_model.py:hundred_million --layer model.model.embed_tokens
        --method captum:LayerIntegratedGradients --options '{"n_steps": 64, "internal_batch_size": 16}'

Needs transformers; nothing is downloaded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

TOKENS = 53


class LastLogits(nn.Module):
    """From ids (n, length) to the logits of the token that follows, (n, vocabulary); no others are made."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(ids, logits_to_keep=1, use_cache=False).logits[:, -1]
        return logits


def made(**sizes: int) -> tuple[LastLogits, torch.Tensor, int]:
    """A model in the style of Qwen3, 53 random ids, and the token whose logit is explained."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(tie_word_embeddings=True, max_position_embeddings=256, head_dim=64, **sizes)
    model = LastLogits(Qwen3ForCausalLM(config)).eval().requires_grad_(False)
    ids = torch.randint(config.vocab_size, (1, TOKENS))
    with torch.no_grad():
        return model, ids, int(model(ids).argmax())


def hundred_million() -> tuple[LastLogits, torch.Tensor, int]:
    """98 million parameters, 53 of them in six layers and the others in the embedding, which is also the head."""
    return made(
        vocab_size=50_000,
        hidden_size=896,
        intermediate_size=2432,
        num_hidden_layers=6,
        num_attention_heads=14,
        num_key_value_heads=7,
    )


def tiny() -> tuple[LastLogits, torch.Tensor, int]:
    """The same with 0.13 million parameters: seconds in the place of minutes."""
    return made(
        vocab_size=500,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
