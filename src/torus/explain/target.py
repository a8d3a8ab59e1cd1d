"""Which number of a model's output is explained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Target = int | Sequence[int | Sequence[int] | torch.Tensor] | torch.Tensor | Callable[[Any], torch.Tensor] | None
"""None: the output is one number a row. An int, or one for each example (a tensor, a list): a class. A tuple of ints:
an element of what a row gives, such as ``(position, token)``. A function of the model's output: its result, (n,).
"""


def pick(output: Any, target: Target, examples: int) -> torch.Tensor:
    """The explained number of each row, shape (n,), of an output with n rows or with such ``logits``.

    Raises ValueError where the target does not fit the output, and says what fits.
    """
    if callable(target):
        return _checked(target(output), "what the target function returned")
    tensor = _tensor(output)
    if target is None:
        return _checked(tensor.reshape(len(tensor)) if tensor[0].numel() == 1 else tensor, "the output")
    per_row = tensor.ndim - 1
    indices = (target,) if isinstance(target, int | torch.Tensor | list) else tuple(target)
    if len(indices) != per_row:
        raise ValueError(
            f"the target {_shown(target)} has {len(indices)} indices, and the output of shape {tuple(tensor.shape)} "
            f"needs {per_row} for each row"
        )
    picked = [_index(index, size, examples, tensor) for index, size in zip(indices, tensor.shape[1:], strict=True)]
    return tensor[(torch.arange(len(tensor), device=tensor.device), *picked)]


def _tensor(output: Any) -> torch.Tensor:
    found = output if isinstance(output, torch.Tensor) else getattr(output, "logits", None)
    if found is None and isinstance(output, tuple | list) and output:
        found = output[0]
    if not isinstance(found, torch.Tensor) or found.ndim == 0:
        raise ValueError(
            f"the model returned {_shown(output)}; expected a tensor with a row for each example, or an object with "
            "such `logits`. A function as target can pick a number of any output"
        )
    return found


def _checked(picked: Any, what: str) -> torch.Tensor:
    if not isinstance(picked, torch.Tensor) or picked.ndim != 1:
        raise ValueError(f"{what} is {_shown(picked)}, expected one number for each row; a target picks one of several")
    return picked


def on_host(target: Target) -> Target:
    """The target with tensors on the host as ints and lists of them, so that a call of the model reads no tensor."""
    if isinstance(target, tuple):
        return tuple(on_host(index) for index in target)  # type: ignore[misc]
    return target.tolist() if isinstance(target, torch.Tensor) and target.device.type == "cpu" else target


def _index(index: Any, size: int, examples: int, output: torch.Tensor) -> torch.Tensor | int:
    index = on_host(index)
    if isinstance(index, torch.Tensor):
        integers, count = not index.dtype.is_floating_point and index.dtype != torch.bool, index.numel()
    else:
        chosen = index if isinstance(index, list) else [index]
        integers, count = all(type(item) is int for item in chosen), len(chosen)
    if not integers or count not in (1, examples):
        raise ValueError(f"the target {_shown(index)} is neither an int nor one int for each of {examples} examples")
    if isinstance(index, torch.Tensor):
        return index.reshape(-1).to(output.device).repeat(len(output) // count)
    if min(chosen) < -size or max(chosen) >= size:
        raise ValueError(f"the target {_shown(index)} is out of range: the output has shape {tuple(output.shape)}")
    return chosen[0] if count == 1 else torch.tensor(chosen, device=output.device).repeat(len(output) // count)


def _shown(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)[:80]
