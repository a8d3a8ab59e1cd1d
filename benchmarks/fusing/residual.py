"""A residual network of basic blocks, two in each of four stages, as ResNet-18 at half its width."""

from __future__ import annotations

from typing import Any


def residual() -> tuple[Any, Any, Any]:
    """The model, 8 images of 3x32x32 and their classes, out of 10."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inside: int, outside: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
            self.norm1 = nn.BatchNorm2d(outside)
            self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
            self.norm2 = nn.BatchNorm2d(outside)
            self.short = nn.Sequential()
            if stride != 1 or inside != outside:
                self.short = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.relu(self.norm1(self.conv1(x)))
            return torch.relu(self.norm2(self.conv2(y)) + self.short(x))

    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    inside = 32
    for width, stride in ((32, 1), (64, 2), (128, 2), (256, 2)):
        layers += [Block(inside, width, stride), Block(width, width, 1)]
        inside = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 10))
    return model, torch.randn(8, 3, 32, 32), torch.randint(10, (8,))
