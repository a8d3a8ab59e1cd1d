"""Why are two sentences similar? Captum's integrated gradients over the embedding layer, one score a token.

Sentence A is explained by f(A) = cos(embed(A), embed(B)) with embed(B) held fixed, and the other way round. The path
runs from a baseline in which every word is the padding token. Integrated gradients are complete (Sundararajan, Taly and
Yan, 2017): the scores of A add up to f(A) - f(baseline), and what is missing is the convergence delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from captum.attr import LayerIntegratedGradients

from sentences.encoder import Batch, Encoder

ROWS_PER_CALL = 96
"""Rows that one call of the model gets. Steps that fill calls evenly share one set of compiled programs."""


@dataclass(frozen=True)
class Attribution:
    """Scores and deltas of a batch in which rows 2i and 2i+1 are a pair, all on the CPU.

    `scores` is [sentences, tokens]; `similarity`, `baseline` and `delta` are [sentences]; all in cosine similarity.
    """

    scores: torch.Tensor
    similarity: torch.Tensor
    baseline: torch.Tensor
    delta: torch.Tensor

    @property
    def relative_delta(self) -> torch.Tensor:
        """|delta| over |f(x) - f(baseline)|, for each sentence."""
        return self.delta.abs() / (self.similarity - self.baseline).abs()


def model_calls(sentences: int, steps: int) -> int:
    """How often `attribute` calls the model: along the path, and six times at its ends."""
    return math.ceil(steps / max(1, ROWS_PER_CALL // sentences)) + 6


def attribute(encoder: Encoder, batch: Batch, steps: int, on_call: Callable[[], None] = lambda: None) -> Attribution:
    """Explain each sentence of `batch` by its similarity to its partner, in one call of Captum.

    steps: points on the path of the integral; the error falls exponentially with them.
    on_call: called after each forward pass.
    """
    device = encoder.device
    ids, mask = batch.ids.to(device), batch.mask.to(device)
    baseline = batch.baseline(encoder.tokenizer.pad_token_id).to(device)
    with torch.no_grad():
        partner = encoder.embed(ids, mask).unflatten(0, (-1, 2)).flip(1).flatten(0, 1)

    def similarity(ids: torch.Tensor, mask: torch.Tensor, partner: torch.Tensor) -> torch.Tensor:
        result = (encoder.embed(ids, mask) * partner).sum(-1)
        on_call()
        return result

    method = LayerIntegratedGradients(similarity, encoder.model.get_input_embeddings())
    scores, delta = method.attribute(
        ids,
        baselines=baseline,
        additional_forward_args=(mask, partner),
        n_steps=steps,
        internal_batch_size=max(ROWS_PER_CALL, len(ids)),
        return_convergence_delta=True,
    )
    with torch.no_grad():
        ends = [similarity(x, mask, partner).cpu() for x in (ids, baseline)]
    return Attribution(scores.sum(-1).detach().cpu(), ends[0], ends[1], delta.detach().cpu())
