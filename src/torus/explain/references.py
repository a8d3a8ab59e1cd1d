"""Several baselines for every example."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torus.explain.points import Points, as_points, each, repeat, rows

References = torch.Tensor | Sequence[torch.Tensor] | None


def as_references(references: References, points: Points, baselines: Points) -> tuple[Points, Points]:
    """Pairs of a baseline and an example, all examples in turn for each of m baselines: ``m * b`` rows each.

    Without `references`, (m, ...) each, the pairs are those of `baselines`. Raises ValueError for what does not fit.
    """
    if references is None:
        return baselines, points
    given = as_points(references, "references")
    if len(given) != len(points) or any(a.shape[1:] != b.shape[1:] for a, b in zip(given, points, strict=True)):
        raise ValueError(
            f"references of shapes {[tuple(tensor.shape) for tensor in given]} do not fit inputs of shapes "
            f"{[tuple(tensor.shape) for tensor in points]}: all but the first dimension must agree"
        )
    starts = each(lambda r, x: r.to(x.dtype).to(x.device).repeat_interleave(len(x), 0), given, points)
    return starts, repeat(points, rows(given))


def mean(tensor: torch.Tensor, examples: int) -> torch.Tensor:
    """The mean over the baselines of each example: (m * b, ...) to (b, ...)."""
    return tensor.unflatten(0, (-1, examples)).mean(0)
