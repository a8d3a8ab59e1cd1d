"""Keep only the logits that a target needs, where a model can: a row has one for each position and token."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from torus.explain.points import Points
from torus.explain.target import Target


def only_needed(
    model: Callable[..., Any], inputs: Points, arguments: dict[str, Any], target: Target
) -> tuple[dict[str, Any], Target]:
    """Arguments and target with which a language model makes the logits of the target's positions alone.

    For models whose call takes `logits_to_keep`, the convention of transformers, and targets ``(position, token)`` that
    fit the inputs; anything else stays as it is.
    """
    if not isinstance(target, tuple) or len(target) != 2 or "logits_to_keep" in arguments or not _keeps(model):
        return arguments, target
    positions: Any = target[0]
    given = positions if isinstance(positions, list) else [positions]
    length = inputs[0].shape[1] if inputs[0].ndim > 1 else 0
    if not all(type(position) is int and -length <= position < length for position in given):
        return arguments, target
    kept = sorted(set(given))
    places = [kept.index(position) for position in given]
    narrowed: Any = (places if isinstance(positions, list) else places[0], target[1])
    return arguments | {"logits_to_keep": kept}, narrowed


def _keeps(model: Callable[..., Any]) -> bool:
    return isinstance(model, torch.nn.Module) and "logits_to_keep" in inspect.signature(model.forward).parameters
