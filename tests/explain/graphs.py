"""Random functions made of PyTorch's ops: functional ops, reused modules, pools, norms, softmax, products, indexing."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

WIDTH = 6
Unary = Callable[[torch.Tensor], torch.Tensor]


class RandomGraph(nn.Module):
    """From (n, 6) to (n,): steps that each take one or two earlier results, (n, 6), and make another."""

    def __init__(self, seed: int, length: int = 9) -> None:
        super().__init__()
        chance = random.Random(seed)
        generator = torch.Generator().manual_seed(seed)
        self.weights = nn.ParameterList(torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH**0.5 for _ in range(3))
        self.kernel = nn.Parameter(torch.randn(1, 1, 2, 2, generator=generator))
        self.shared = nn.ReLU()
        self.norm = nn.LayerNorm(WIDTH)
        self.last = nn.Parameter(torch.randn(WIDTH, generator=generator))
        names = sorted(self.steps())
        self.plan = [(chance.choice(names), chance.random(), chance.random()) for _ in range(length)]

    def steps(self) -> dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
        def image(x: torch.Tensor) -> torch.Tensor:
            return x.reshape(-1, 1, 2, 3)

        def written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x = x.clone()
            x[:, 1:3] *= y[:, :2]
            return x.view(-1, 2, 3).transpose(1, 2).reshape(-1, WIDTH)

        def attention(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            q, k = x.view(-1, 1, 3, 2), y.view(-1, 1, 3, 2)
            return F.scaled_dot_product_attention(q, k, q + 1, is_causal=True).flatten(1)

        return {
            "linear": lambda x, y: F.linear(x, self.weights[0], self.last),
            "other linear": lambda x, y: x @ self.weights[1],
            "residual": lambda x, y: x + torch.tanh(y @ self.weights[2]),
            "conv": lambda x, y: F.conv2d(F.pad(image(x), (1, 0, 1, 0)), self.kernel).flatten(1),
            "relu": lambda x, y: F.relu(x),
            "shared relu": lambda x, y: self.shared(x - 0.2),
            "gelu": lambda x, y: F.gelu(x),
            "tanh gelu": lambda x, y: F.gelu(x, approximate="tanh"),
            "silu": lambda x, y: F.silu(x),
            "elu": lambda x, y: F.elu(x),
            "leaky": lambda x, y: F.leaky_relu(x, 0.1),
            "sigmoid": lambda x, y: torch.sigmoid(x),
            "softplus": lambda x, y: F.softplus(x),
            "hardswish": lambda x, y: F.hardswish(x),
            "clamp": lambda x, y: x.clamp(-0.5, 0.7),
            "sin": lambda x, y: torch.sin(2 * x),
            "gate": lambda x, y: x * torch.sigmoid(y),
            "square": lambda x, y: x**2 - y,
            "quotient": lambda x, y: x / (1 + y.abs()),
            "softmax": lambda x, y: torch.softmax(2 * x, -1) + y,
            "log softmax": lambda x, y: F.log_softmax(x, -1),
            "logsumexp": lambda x, y: y + x.logsumexp(-1, keepdim=True),
            "layer norm": lambda x, y: self.norm(x),
            "group norm": lambda x, y: F.group_norm(x + 0.1 * y, 2),
            "rms": lambda x, y: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3),
            "normalize": lambda x, y: x / x.norm(dim=-1, keepdim=True).clamp_min(0.1),
            "deviation": lambda x, y: y * x.std(-1, keepdim=True),
            "max pool": lambda x, y: F.max_pool1d(x[:, None], 3, 1, 1)[:, 0],
            "dilated max pool": lambda x, y: F.max_pool2d(image(x), (2, 1), 1, (1, 0), (2, 1)).flatten(1)[:, :WIDTH],
            "average pool": lambda x, y: F.avg_pool1d(x[:, None], 3, 1, 1)[:, 0],
            "amax": lambda x, y: y - x.amax(-1, keepdim=True),
            "maximum": lambda x, y: torch.maximum(x, y),
            "cummax": lambda x, y: x.cummax(-1).values,
            "sort": lambda x, y: x.sort(-1).values * 0.5,
            "topk": lambda x, y: torch.cat([x.topk(3).values, y.topk(3, largest=False).values], -1),
            "where": lambda x, y: torch.where(x > y, x * y, 0.5 * y),
            "mask": lambda x, y: (x > 0) * y,
            "cumsum": lambda x, y: x.cumsum(-1) / 3,
            "prod": lambda x, y: x + y.prod(-1, keepdim=True),
            "bmm": lambda x, y: torch.bmm(x.view(-1, 3, 2), y.view(-1, 2, 3)).flatten(1)[:, :WIDTH],
            "attention": attention,
            "written": written,
            "upsample": lambda x, y: F.interpolate(x[:, None], 12, mode="linear")[:, 0, ::2],
            "gather": lambda x, y: x[:, [3, 0, 0, 5, 1, 2]],
            "flip": lambda x, y: x.flip(-1) - y.roll(1, -1),
        }

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps, made = self.steps(), [x]
        for name, first, second in self.plan:
            picked = (made[-1 - int(first**3 * len(made))], made[-1 - int(second * len(made))])
            made.append(steps[name](*picked))
        return (made[-1] + made[-2]) @ self.last
