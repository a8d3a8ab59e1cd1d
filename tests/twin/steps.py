"""Running a step's program on the host, which is not the platform that it was lowered for but means the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from torus import runtime
from torus.twin.step import Step


def run(step: Step, given: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The results by name; arguments that are not given are zeros."""
    program = runtime.programs.get_or_compile(step.text, [(r.shape, r.dtype) for r in step.results], keep=False)
    arrays = [
        np.ascontiguousarray(given[a.name]) if a.name in given else np.zeros(a.shape, a.dtype) for a in step.arguments
    ]
    results = program([runtime.from_numpy(array.copy()) for array in arrays])
    return {r.name: runtime.to_numpy(x) for r, x in zip(step.results, results, strict=True)}


def values(model: torch.nn.Module) -> dict[str, Any]:
    """Parameters and buffers by name, as they are now."""
    return {name: t.detach().clone().numpy() for name, t in model.state_dict().items()}


class Layer(torch.nn.Module):
    """A residual layer with a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.down(torch.relu(self.up(self.norm(x))))
        return result


class Stack(torch.nn.Module):
    """Layers of equal kind between two others."""

    def __init__(self, layers: int = 3, width: int = 128) -> None:
        super().__init__()
        self.first = torch.nn.Linear(width, width)
        self.layers = torch.nn.ModuleList(Layer(width) for _ in range(layers))
        self.last = torch.nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        result: torch.Tensor = self.last(x)
        return result
