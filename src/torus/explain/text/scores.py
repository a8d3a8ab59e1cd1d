"""The number that is explained, as a module from token ids (n, length) to (n,), whatever the model gives.

What differs from text to text (positions, tokens, masks) are tensors, so that all texts of a length share programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from torus.explain.text.lengths import rounded
from torus.explain.text.prefix import Prefix, only_logits

KINDS = ("log_prob", "logit", "prob")


class NextTokens(nn.Module):
    """What a causal language model gives tokens at their places, summed over them: log-probabilities, logits, or
    probabilities; minus that of other tokens at these places where `against` is given.

    places: for each token, which of the ids it comes after, counted from the end of the prefix.
    """

    places: torch.Tensor
    tokens: torch.Tensor
    against: torch.Tensor
    weights: torch.Tensor

    def __init__(
        self,
        model: nn.Module,
        places: Sequence[int],
        tokens: Sequence[int],
        against: Sequence[int] | None = None,
        *,
        kind: str = "log_prob",
        prefix: Prefix | None = None,
    ) -> None:
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"there is no score {kind!r}; there are {', '.join(KINDS)}")
        self.model, self.kind, self.prefix = model, kind, prefix
        self.count = len(tokens)
        for name, values in (("places", places), ("tokens", tokens), ("against", against or tokens)):
            self.register_buffer(name, self._filled(values), persistent=False)
        weights = torch.zeros(len(self.places))
        weights[: self.count] = 1
        self.register_buffer("weights", weights.to(_device(model)), persistent=False)
        self.contrastive = against is not None

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return (self.each(ids) * self.weights).sum(1)

    def each(self, ids: torch.Tensor) -> torch.Tensor:
        """The summands, (n, tokens); some more at the end are filling."""
        arguments = only_logits(self.model, self.places)
        if self.prefix is not None:
            arguments |= self.prefix.arguments(len(ids))
        logits = self.model(input_ids=ids, **arguments).logits
        if "logits_to_keep" not in arguments:
            logits = logits[:, self.places]
        scores = _scored(logits.float(), self.kind)
        found = _taken(scores, self.tokens)
        return found - _taken(scores, self.against) if self.contrastive else found

    def _filled(self, values: Sequence[int]) -> torch.Tensor:
        """As many as a few sizes have; one stays one."""
        size = 1 if len(values) == 1 else rounded(len(values))
        return torch.tensor([*values, *[values[-1]] * (size - len(values))]).to(_device(self.model))


class Class(nn.Module):
    """The logit, log-probability or probability of a class, minus that of another where `against` is given."""

    mask: torch.Tensor

    def __init__(
        self, model: nn.Module, mask: torch.Tensor, target: int, against: int | None = None, *, kind: str = "logit"
    ) -> None:
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"there is no score {kind!r}; there are {', '.join(KINDS)}")
        self.model, self.kind, self.target, self.against = model, kind, target, against
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        output = self.model(input_ids=ids, attention_mask=self.mask.expand(len(ids), -1))
        scores = _scored(_logits(output).float(), self.kind)
        return scores[:, self.target] - (0 if self.against is None else scores[:, self.against])


class Similarity(nn.Module):
    """The cosine similarity of a text's embedding (the mean of the last layer over the tokens) with a fixed vector."""

    mask: torch.Tensor
    vector: torch.Tensor

    def __init__(self, model: nn.Module, mask: torch.Tensor, vector: torch.Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("mask", mask, persistent=False)
        self.register_buffer("vector", vector, persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return (embedding(self.model, ids, self.mask) * self.vector).sum(-1)


def embedding(model: Any, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean of the last layer over the tokens of each row, of length 1: (n, width)."""
    hidden = model(input_ids=ids, attention_mask=mask.expand(len(ids), -1)).last_hidden_state.float()
    weight = mask.unsqueeze(-1).to(hidden.dtype)
    return nn.functional.normalize((hidden * weight).sum(1) / weight.sum(1), dim=-1)


def _scored(logits: torch.Tensor, kind: str) -> torch.Tensor:
    if kind == "logit":
        return logits
    return logits.log_softmax(-1) if kind == "log_prob" else logits.softmax(-1)


def _taken(scores: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """The score of token `j` at place `j`: (n, places, vocabulary) to (n, places)."""
    index = tokens.reshape(1, -1, 1).expand(len(scores), -1, 1)
    return scores.gather(-1, index).squeeze(-1)


def _logits(output: Any) -> torch.Tensor:
    logits = getattr(output, "logits", output)
    if not isinstance(logits, torch.Tensor) or logits.ndim != 2:
        raise ValueError("the model gives no logits of classes; a sentence encoder is explained by `similar_to`")
    return logits


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
