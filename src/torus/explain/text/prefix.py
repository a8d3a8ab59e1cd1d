"""The beginning of a text that no row changes, run once: its keys and values serve every row of every call."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch

STEP = 32
"""Prefixes are cut to multiples of this, so that there are few lengths of them."""


def shareable(model: torch.nn.Module, unchanged: int) -> int:
    """How many of the first `unchanged` tokens a model can be given as a cache; 0 where it takes none."""
    return unchanged // STEP * STEP if _cache_argument(model) else 0


class Prefix:
    """The cache of the first tokens, (1, p), of a causal language model, for any number of rows."""

    def __init__(self, model: torch.nn.Module, ids: torch.Tensor) -> None:
        self.length = ids.shape[1]
        self._name = _cache_argument(model)
        with torch.no_grad():
            output = model(input_ids=ids, use_cache=True, **only_logits(model, 1))
        self._cache = getattr(output, self._name)

    def arguments(self, rows: int) -> dict[str, Any]:
        """What a call of the model with `rows` rows of the following tokens is given. The cache stays as it is."""
        cache = copy.copy(self._cache)
        cache.layers = [copy.copy(layer) for layer in self._cache.layers]  # a call replaces their tensors
        cache.batch_repeat_interleave(rows)
        return {self._name: cache, "use_cache": True}


def only_logits(model: torch.nn.Module, kept: int | torch.Tensor) -> dict[str, Any]:
    """The argument by which a model makes the logits of the last few or of some positions alone, if it has one."""
    return {"logits_to_keep": kept} if "logits_to_keep" in _parameters(model) else {}


def _cache_argument(model: torch.nn.Module) -> str:
    """Newer models call it `cache`; empty for models without."""
    return next((name for name in ("cache", "past_key_values") if name in _parameters(model)), "")


def _parameters(model: torch.nn.Module) -> Any:
    return inspect.signature(model.forward).parameters
