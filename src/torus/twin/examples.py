"""Models of the worked examples, by the name that ``torus plan`` takes. None of them has memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Recipe = dict[str, Any]
"""``model``, ``inputs``, and where they are not the usual ones ``loss`` and ``optimizer``."""


def _language_model(architecture: str, batch: int, tokens: int, dtype: torch.dtype, **config: Any) -> Recipe:
    import transformers

    made = transformers.AutoConfig.for_model(architecture, use_cache=False, **config)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(made, dtype=dtype).train()
        ids = torch.zeros(batch, tokens, dtype=torch.int64)
    return {"model": model, "inputs": {"input_ids": ids, "labels": ids.clone()}}


_QWEN3: dict[str, Any] = {
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "tie_word_embeddings": True,
}


def qwen3_0_6b(batch: int = 1, tokens: int = 2048, layers: int = 28) -> Recipe:
    """Qwen3-0.6B in bfloat16, all of its parameters trained."""
    return _language_model("qwen3", batch, tokens, torch.bfloat16, num_hidden_layers=layers, **_QWEN3)


def qwen3_attribution(batch: int = 128, tokens: int = 53, layers: int = 28, logits_to_keep: int = 1) -> Recipe:
    """Gradients of a score of Qwen3-0.6B in float32 with respect to embedded tokens: integrated gradients of one text,
    with a row for each of its steps.
    """
    model = _language_model("qwen3", 1, tokens, torch.float32, num_hidden_layers=layers, **_QWEN3)["model"].eval()
    with torch.device("meta"):
        embedded = torch.zeros(batch, tokens, _QWEN3["hidden_size"])
    return {"model": _Attribution(model.requires_grad_(False), logits_to_keep), "inputs": (embedded,)}


class _Attribution(nn.Module):
    def __init__(self, model: nn.Module, logits_to_keep: int) -> None:
        super().__init__()
        self.model, self.logits_to_keep = model, logits_to_keep

    def forward(self, embedded: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            points = embedded.detach().requires_grad_()
            logits = self.model(inputs_embeds=points, logits_to_keep=self.logits_to_keep).logits
            (gradient,) = torch.autograd.grad(logits[:, -1, 0].sum(), points)
        return gradient


def llama_3_8b_lora(batch: int = 1, tokens: int = 2048, layers: int = 32, rank: int = 16) -> Recipe:
    """Llama-3-8B in bfloat16 with adapters of the given rank on every linear layer of its blocks, which alone are
    trained, in float32.
    """
    recipe = _language_model(
        "llama",
        batch,
        tokens,
        torch.bfloat16,
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        tie_word_embeddings=False,
    )
    recipe["model"].requires_grad_(False)
    _adapt(recipe["model"].model.layers, rank)
    return recipe


class Adapted(nn.Module):
    """A frozen linear layer and a low-rank product beside it: Hu et al., "LoRA" (2021)."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float = 32.0) -> None:
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x` of sizes (..., in_features)."""
        added = self.up(self.down(x.to(self.down.weight.dtype)))
        result: torch.Tensor = self.base(x) + (added * self.scale).to(x.dtype)
        return result


def _adapt(module: nn.Module, rank: int) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            with torch.device("meta"):
                setattr(module, name, Adapted(child, rank))
        else:
            _adapt(child, rank)


def minilm(batch: int = 32, tokens: int = 128) -> Recipe:
    """A sentence encoder of the sizes of MiniLM-L6, trained so that pairs in a batch have like embeddings."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=30522,
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    with torch.device("meta"):
        model = transformers.BertModel(config, add_pooling_layer=False).train()
        ids = torch.zeros(batch, tokens, dtype=torch.int64)
    return {"model": model, "inputs": {"input_ids": ids}, "loss": _contrast}


def _contrast(model: nn.Module, input_ids: torch.Tensor) -> torch.Tensor:
    """Each sentence beside its neighbour in the batch, against all others."""
    embedded = nn.functional.normalize(model(input_ids=input_ids).last_hidden_state.mean(1), dim=-1)
    scores = embedded[0::2] @ embedded[1::2].T * 20
    return nn.functional.cross_entropy(scores, torch.arange(len(scores), device=scores.device))


class _Residual(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outer),
            nn.ReLU(),
            nn.Conv2d(outer, outer, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outer),
        )
        changes = stride != 1 or inner != outer
        self.beside = (
            nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))
            if changes
            else nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.beside(x))


def resnet18(batch: int = 64, pixels: int = 224, classes: int = 1000) -> Recipe:
    """A network of the sizes of ResNet-18: He et al., "Deep residual learning" (2016)."""
    widths = (64, 64, 128, 256, 512)
    with torch.device("meta"):
        blocks = [
            _Residual(inner if i == 0 else outer, outer, stride if i == 0 else 1)
            for inner, outer, stride in zip(widths, widths[1:], (1, 2, 2, 2))
            for i in range(2)
        ]
        model = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
            *blocks,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(512, classes),
        ).train()
        images, labels = torch.zeros(batch, 3, pixels, pixels), torch.zeros(batch, dtype=torch.int64)
    return {"model": model, "inputs": (images, labels), "loss": _classify}


def _classify(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(images), labels)


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = (
            t.view(batch, tokens, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(width, -1)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class TinyGPT(nn.Module):
    """A decoder of the kind of GPT-2; `forward` gives the logits (batch, tokens, vocabulary)."""

    def __init__(self, vocabulary: int, tokens: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """`ids` of sizes (batch, tokens)."""
        x = self.words(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        result: torch.Tensor = self.head(self.norm(x))
        return result


def tiny_gpt(
    batch: int = 16, tokens: int = 256, layers: int = 4, width: int = 256, heads: int = 4, vocabulary: int = 8192
) -> Recipe:
    """A small decoder that learns to say the next word, in float32."""
    with torch.device("meta"):
        model = TinyGPT(vocabulary, tokens, width, heads, layers).train()
        ids = torch.zeros(batch, tokens, dtype=torch.int64)
    return {"model": model, "inputs": (ids, ids.clone()), "loss": _next_word}


def _next_word(model: nn.Module, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    logits = model(ids)
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


EXAMPLES: dict[str, Callable[..., Recipe]] = {
    "minilm": minilm,
    "resnet18": resnet18,
    "tiny-gpt": tiny_gpt,
    "qwen3-0.6b": qwen3_0_6b,
    "qwen3-0.6b-attribution": qwen3_attribution,
    "llama-3-8b-lora": llama_3_8b_lora,
}
