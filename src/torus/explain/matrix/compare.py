"""Whether results of the device are as right as the CPU's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

FACTOR = 2
"""A result may be so many times further from float64 than the CPU's, where it is further from that than the limit."""

Results = Sequence[torch.Tensor]


@dataclass(frozen=True)
class Judgement:
    """Errors in units of the largest element of a result; those against float64 only where they decided.

    `cpu_error` is that of the worst result that rounding excuses.
    """

    right: bool
    error: float
    exact_error: float | None = None
    cpu_error: float | None = None


def judge(
    found: Sequence[Results],
    expected: Results,
    exact: Callable[[], Results],
    limit: float,
    nudged: Callable[[], Iterable[Results]] = tuple,
) -> Judgement:
    """Results of several runs must be within the limit of the CPU's, or as near to float64 as the CPU's are.

    The CPU's may be near by luck. What also excuses an error is that of `nudged` results: exact ones, but of weights
    that are off by a rounding.
    """
    error = max(distance(results, expected) for results in found)
    if error <= limit or not math.isfinite(error):
        return Judgement(error <= limit, error)
    truth = exact()
    ours, theirs = max(distance(results, truth) for results in found), distance(expected, truth)
    if ours > max(limit, FACTOR * theirs):
        theirs = max(theirs, *(distance(results, truth) for results in nudged()), 0)
    return Judgement(ours <= max(limit, FACTOR * theirs), error, ours, theirs)


def flat(tree: Any) -> list[torch.Tensor]:
    """The tensors and numbers of a tree, on the CPU, in float64."""
    leaves = torch.utils._pytree.tree_leaves(tree)
    tensors = (torch.as_tensor(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor | float | int))
    return [tensor.detach().cpu().double() for tensor in tensors]


def distance(found: Results, expected: Results) -> float:
    """The largest difference in units of the largest element; infinite where shapes or finite elements differ."""
    if [x.shape for x in found] != [x.shape for x in expected] or not expected:
        return math.inf
    return max(_distance(a, b) for a, b in zip(found, expected, strict=True))


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    finite = b.isfinite()
    if not torch.equal(finite, a.isfinite()):
        return math.inf
    if not finite.any():
        return 0.0
    gap, size = float((a - b)[finite].abs().max()), float(b[finite].abs().max())
    return gap / size if size else gap
