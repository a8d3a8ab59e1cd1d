"""Which elements of the inputs make up a feature."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torus.explain.points import Points, rows

Given = torch.Tensor | Sequence[torch.Tensor] | None


class Segments:
    """A feature number for each element of the points, on the host and on their device; `count` features.

    `given` has an integer tensor for each of the points, that broadcasts to their shape (b, ...): equal integers are
    one feature, also across inputs, and elements with a negative one keep their value always. Features are in the order
    of their integers. Without it, every element is a feature. Raises ValueError for what does not fit.
    """

    def __init__(self, given: Given, points: Points) -> None:
        index = _elements(points) if given is None else _given(given, points)
        found = torch.cat([tensor.flatten() for tensor in index])
        ids = found[found >= 0].unique()
        if not len(ids):
            raise ValueError("the segments hold no feature: every integer in them is negative")
        self.count = len(ids)
        self._host = [
            torch.where(tensor >= 0, torch.searchsorted(ids, tensor.contiguous()), self.count) for tensor in index
        ]
        self._device = [tensor.to(point.device) for tensor, point in zip(self._host, points, strict=True)]

    def choose(self, keep: torch.Tensor, points: Points, baselines: Points) -> Points:
        """For coalitions (r, count) on the points' device: r * b rows, with what is not kept at the baseline."""
        keep = torch.cat((keep, torch.ones_like(keep[:, :1])), 1)
        return tuple(
            torch.where(keep[:, index], point, baseline).flatten(0, 1)
            for index, point, baseline in zip(self._device, points, baselines, strict=True)
        )

    def choose_each(self, keep: torch.Tensor, points: Points, baselines: Points) -> Points:
        """The same for coalitions that differ from example to example, (r, b, count)."""
        keep = torch.cat((keep, torch.ones_like(keep[:, :, :1])), 2)
        example = torch.arange(rows(points), device=keep.device)
        return tuple(
            torch.where(keep[:, example.reshape(-1, *[1] * (index.ndim - 1)), index], point, baseline).flatten(0, 1)
            for index, point, baseline in zip(self._device, points, baselines, strict=True)
        )

    def gather(self, points: Points) -> torch.Tensor:
        """The sums of the elements of each feature, (b, count), in float64 on the host."""
        index = torch.cat([i.expand(p.shape).flatten(1) for i, p in zip(self._host, points, strict=True)], 1)
        elements = torch.cat([point.detach().cpu().double().flatten(1) for point in points], 1)
        sums = torch.zeros(len(index), self.count + 1, dtype=torch.float64)
        return sums.scatter_add_(1, index, elements)[:, :-1]

    def spread(self, features: torch.Tensor, points: Points, dtype: torch.dtype) -> Points:
        """Numbers of features (b, count) shared evenly by their elements: like the points, with the same sums.

        Of features (b, count, m), results have m at their end.
        """
        of_rows = [i.expand(p.shape).flatten(1) for i, p in zip(self._host, points, strict=True)]
        everywhere = torch.cat(of_rows, 1)
        sizes = torch.zeros(rows(points), self.count + 1).scatter_add_(1, everywhere, torch.ones(everywhere.shape))
        padded = torch.cat((features, torch.zeros_like(features[:, :1])), 1)
        shares = padded / sizes.clamp_min(1).reshape(*sizes.shape, *[1] * (features.ndim - 2))
        example = torch.arange(rows(points))[:, None]
        return tuple(
            shares[example, index].unflatten(1, point.shape[1:]).to(point.device, dtype)
            for index, point in zip(of_rows, points, strict=True)
        )


def _elements(points: Points) -> Points:
    """Every element on its own, numbered through all inputs."""
    index, first = [], 0
    for point in points:
        count = point[0].numel()
        index.append(torch.arange(first, first + count).reshape(1, *point.shape[1:]))
        first += count
    return tuple(index)


def _given(given: torch.Tensor | Sequence[torch.Tensor], points: Points) -> Points:
    tensors = (given,) if isinstance(given, torch.Tensor) else tuple(given)
    if len(tensors) != len(points):
        raise ValueError(f"there are segments for {len(tensors)} inputs, and {len(points)} inputs")
    return tuple(_fitting(tensor, point) for tensor, point in zip(tensors, points, strict=True))


def _fitting(segments: torch.Tensor, point: torch.Tensor) -> torch.Tensor:
    """Shape (1, ...) where all examples share the segments, else (b, ...), on the host."""
    if segments.dtype.is_floating_point or segments.dtype.is_complex or segments.dtype == torch.bool:
        raise ValueError(f"segments are integers, and not {segments.dtype}")
    segments = segments.detach().cpu().long()
    try:
        shared = segments.ndim < point.ndim or len(segments) == 1
        return segments.expand(1 if shared else len(point), *point.shape[1:])
    except RuntimeError as error:
        raise ValueError(
            f"segments of shape {tuple(segments.shape)} do not fit an input of shape {tuple(point.shape)}"
        ) from error
