"""Models that the export tests share, with example inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Case = tuple[nn.Module, tuple[Any, ...]]


def mlp() -> Case:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3)), (torch.randn(4, 8),)


def cnn() -> Case:
    """Batch norm in evaluation, with statistics that are not the initial ones."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 5)
    )
    with torch.no_grad():
        model[1].running_mean.normal_()
        model[1].running_var.uniform_(0.5, 2)
    return model, (torch.randn(2, 3, 8, 8),)


class Block(nn.Module):
    """Token and position embeddings, one causal transformer block, an output layer that shares the embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 16)
        self.register_buffer("positions", torch.randn(6, 16))
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True, dropout=0.1)
        self.norm = nn.LayerNorm(16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Dropout(0.1), nn.Linear(32, 16))
        self.head = nn.Linear(16, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor, mask: Tensor) -> dict[str, Any]:
        x = self.tokens(ids) + self.positions[: ids.shape[1]]
        causal = torch.triu(torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device), 1)
        h, weights = self.attention(x, x, x, attn_mask=causal, average_attn_weights=False)
        x = x + self.mlp(self.norm(x + h))
        pooled = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return {"logits": self.head(x), "pooled": pooled, "more": [weights, None, (x.argmax(-1), ids.shape[0])]}


def transformer() -> Case:
    return Block(), (torch.randint(0, 11, (2, 6)), torch.tensor([[1.0] * 6, [1.0] * 4 + [0.0] * 2]))


class Decoder(nn.Module):
    """Attention of torch's fused kind with all sorts of masks, rotary angles, a norm, a cumulative sum."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.scale = nn.Parameter(torch.ones(16))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        angles = torch.arange(x.shape[1], device=x.device)[:, None] / 10.0 ** torch.arange(8, device=x.device)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        y = F.scaled_dot_product_attention(q * cos, k[:, :1] * sin, v[:, :1], is_causal=True, enable_gqa=True)
        y = y + F.scaled_dot_product_attention(q, k, v, attn_mask=x[:, None, None, :, 0] > 0, scale=0.7)
        y = F.rms_norm(y.transpose(1, 2).flatten(2), (16,), self.scale, eps=1e-6)
        return y.cumsum(1)[:, -1], (y > 0).sum((1, 2))


def decoder() -> Case:
    return Decoder(), (torch.randn(2, 5, 16),)


CASES: dict[str, Callable[[], Case]] = {f.__name__: f for f in (mlp, cnn, transformer, decoder)}


def make(name: str) -> Case:
    """The model of this name in evaluation, the same each time."""
    torch.manual_seed(0)
    model, args = CASES[name]()
    return model.eval(), args
