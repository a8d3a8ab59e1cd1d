"""Twenty small models with random weights, each with one example: perceptrons, convolutions, causal language models."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from typing import Any

TARGET = 1
_PERCEPTRONS = (("ReLU", 2), ("ReLU", 3), ("GELU", 4), ("Tanh", 2), ("SiLU", 3), ("ReLU", 4))
_CONVOLUTIONS = (
    ("ReLU", "MaxPool2d"),
    ("ReLU", "AvgPool2d"),
    ("GELU", "MaxPool2d"),
    ("SiLU", "AvgPool2d"),
    ("ReLU", "MaxPool2d"),
    ("Tanh", "AvgPool2d"),
)
_LANGUAGE = (
    ("Qwen3", 0.02),
    ("Qwen3", 0.1),
    ("Qwen3", 0.3),
    ("Llama", 0.02),
    ("Llama", 0.1),
    ("GPT2", 0.02),
    ("GPT2", 0.1),
    ("Llama", 0.3),
)
"""Kind, and the deviation of its random weights: the larger, the shorter the part of the path on which all happens."""

Made = tuple[Any, Any]


def makers(quick: bool) -> dict[str, Callable[[], Made]]:
    """A function for each name that makes a model and its input; without language models where transformers is missing.

    quick: two that need nothing installed.
    """
    found: dict[str, Callable[[], Made]] = {}
    for seed, (kind, depth) in enumerate(_PERCEPTRONS):
        found[f"perceptron {seed}, {kind}"] = lambda s=seed, k=kind, d=depth: perceptron(s, k, d)
    for seed, (kind, pool) in enumerate(_CONVOLUTIONS):
        found[f"convolutions {seed}, {kind}, {pool}"] = lambda s=seed, k=kind, p=pool: convolutions(s, k, p)
    if importlib.util.find_spec("transformers"):
        for seed, (kind, spread) in enumerate(_LANGUAGE):
            found[f"{kind} {seed}, {spread}"] = lambda s=seed, k=kind, w=spread: language(s, k, w)
    wanted = ("perceptron 0", "convolutions 3") if quick else ("",)
    return {name: maker for name, maker in found.items() if name.startswith(wanted)}


def perceptron(seed: int, kind: str, depth: int) -> Made:
    """16 features, hidden layers of 64."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    widths = [16] + [64] * depth
    layers = [part for a, b in itertools.pairwise(widths) for part in (nn.Linear(a, b), getattr(nn, kind)())]
    return nn.Sequential(*layers, nn.Linear(64, 3)).eval(), 2 * torch.randn(1, 16)


def convolutions(seed: int, kind: str, pool: str) -> Made:
    """An image of 3 x 16 x 16, two convolutions with pools."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    activation, pooled = getattr(nn, kind), getattr(nn, pool)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        activation(),
        pooled(2),
        nn.Conv2d(8, 16, 3, padding=1),
        activation(),
        pooled(2),
        nn.Flatten(),
        nn.Linear(256, 10),
    )
    return model.eval(), torch.randn(1, 3, 16, 16)


def language(seed: int, kind: str, spread: float) -> Made:
    """Two layers of width 64; embeddings of 12 tokens, to the logit of a token at the last place."""
    import torch
    import transformers

    torch.manual_seed(seed)
    common = {"vocab_size": 128, "initializer_range": spread, "bos_token_id": None, "eos_token_id": None}
    if kind == "GPT2":
        sizes = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}
    else:
        sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
        sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = getattr(transformers, f"{kind}Config")(**common, **sizes)
    name = "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM"
    model = getattr(transformers, name)(config).eval().requires_grad_(False)
    tokens = torch.randint(1, 128, (1, 12))

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, embeddings: Any) -> Any:
            return self.model(inputs_embeds=embeddings, use_cache=False).logits[:, -1]

    return Logits().eval(), model.get_input_embeddings()(tokens).detach()
