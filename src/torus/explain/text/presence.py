"""A text as a function of which of its segments are there: what perturbation methods see."""

from __future__ import annotations

import torch
from torch import nn

from torus.explain.text.segments import Segments


class Presence(nn.Module):
    """From rows (n, segments), 1 for a segment that is there and 0 for one that is not, to the explained numbers (n,).

    The tokens of a segment that is not there are replaced. What is between 0 and 1 counts as there from 0.5 on.

    score: from ids (n, length) to (n,). ids, replacement: (1, length).
    """

    index: torch.Tensor
    ids: torch.Tensor
    replacement: torch.Tensor

    def __init__(
        self, score: nn.Module, ids: torch.Tensor, replacement: torch.Tensor, segments: Segments, features: int
    ):
        super().__init__()
        self.score, self.features = score, features
        index = torch.full((ids.shape[1],), features)  # the last column stands for tokens that are always there
        of_token = torch.tensor(segments.of_token)
        index[: len(of_token)] = torch.where(of_token < 0, features, of_token)
        self.register_buffer("index", index.to(ids.device), persistent=False)
        self.register_buffer("ids", ids, persistent=False)
        self.register_buffer("replacement", replacement, persistent=False)

    def texts(self, presence: torch.Tensor) -> torch.Tensor:
        """The ids of each row, (n, length)."""
        there = torch.nn.functional.pad(presence, (0, 1), value=1.0)[:, self.index] >= 0.5
        return torch.where(there, self.ids, self.replacement)

    def forward(self, presence: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.score(self.texts(presence))
        return found
