"""The integrals of a function's gradient over pieces of straight paths, with what is known of their errors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from torus.explain.function import Function
from torus.explain.points import Points, each, flat
from torus.explain.quadrature import Rule, Weights, crossing_lines

FIGURES = ("sums", "errors", "rounding", "magnitude", "jumps", "doubt")
"""What is measured of each piece: the sum of its integrals, the error of that or of the worst element, what rounding
does to the sum, the largest value, how many gaps between nodes have a jump, and the variance of the worst element for
jumps that share a gap, for one jump on the whole path.
"""


@dataclass(frozen=True)
class Paths:
    """Straight paths from the q rows of `starts` to those of `ends`; elements of all inputs in a row, e of them."""

    function: Function
    starts: Points
    ends: Points
    rule: Rule

    @property
    def dtype(self) -> torch.dtype:
        """What integrals are in: that of the inputs, or float32 where that is narrower."""
        return torch.promote_types(self.ends[0].dtype, torch.float32)

    @property
    def epsilon(self) -> float:
        return torch.finfo(self.ends[0].dtype).eps

    @cached_property
    def placed(self) -> Rule:
        """The rule on the device."""
        return self.rule.to(torch.empty(0, dtype=self.dtype, device=self.ends[0].device))

    def change(self) -> torch.Tensor:
        """How much the function changes along each path, (q,)."""
        return (self.function.value(self.ends) - self.function.value(self.starts)).to(self.dtype)

    def upload(self, *arrays: Any) -> list[torch.Tensor]:
        """Arrays of one shape on the device of the paths, in one transfer."""
        return list(torch.from_numpy(np.stack(arrays)).to(self.dtype).to(self.ends[0].device))

    def measure(self, low: torch.Tensor, width: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The integrals over p pieces of each path, (p, q, e), from where they begin and their widths, (p, q) each.

        Also figures, ``(p, q, len(FIGURES) + k - 1)`` for k nodes: `FIGURES`, and how much all elements change over
        each gap between nodes.
        """
        rule = self.placed
        values, terms = self._nodes(low[..., None] + width[..., None] * rule.nodes)
        terms = terms * width[:, None, :, None]
        slopes = terms.sum(-1).movedim(1, -1)
        magnitude = values.abs().amax(-1)
        smooth, lines = rule.smooth, crossing_lines(rule.nodes, values, slopes, self.epsilon)
        errors = [_error(weights, values, slopes, terms, 4 * self.epsilon * magnitude) for weights in (smooth, lines)]
        chosen = torch.where((errors[1] < errors[0])[..., None], lines.fine, smooth.fine)
        integrals = _integral(chosen, terms)
        rounding = self.epsilon * _integral(chosen**2, terms**2).sum(-1).sqrt()
        variation = terms.diff(dim=1).abs().movedim(1, -1)  # (p, q, e, k - 1)
        jumps, doubt = (torch.where(errors[1] < errors[0], x, 0) for x in _jumps(rule.nodes, variation, width))
        figures = torch.stack([integrals.sum(-1), torch.minimum(*errors), rounding, magnitude, jumps, doubt], -1)
        return integrals, torch.cat([figures, variation.sum(-2)], -1)

    def _nodes(self, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Values (p, q, k) at nodes (p, q, k) of the paths, and gradients times the ways, (p, k, q, e)."""
        pieces, paths, nodes = at.shape
        part = at.movedim(-1, 1).reshape(pieces * nodes, paths)
        points = each(lambda start, end: _between(start, end, part), self.starts, self.ends)
        values, gradients = self.function.grad(points)
        ways = flat(each(torch.sub, self.ends, self.starts))
        terms = flat(gradients).view(pieces, nodes, paths, -1) * ways
        return values.to(self.dtype).view(pieces, nodes, paths).movedim(1, -1), terms


def _between(start: torch.Tensor, end: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """Rows between start and end, (q, ...) each, at parts (n, q) of the way: (n * q, ...)."""
    part = part.view(*part.shape, *[1] * (end.ndim - 1)).to(end.dtype)
    return (start + part * (end - start)).flatten(0, 1)


def _integral(weights: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
    """Sums over nodes, (p, q, e). Not a matrix product, whose precision is the model's affair."""
    return (weights.movedim(-1, 1)[..., None] * terms).sum(1)


def _error(
    weights: Weights, values: torch.Tensor, slopes: torch.Tensor, terms: torch.Tensor, blur: torch.Tensor
) -> torch.Tensor:
    """How far a rule and its coarser one are apart, in the sum or in the worst element, or the slopes' integral and the
    rise of the values, as far as rounding of the values by `blur` does not explain it. (p, q).
    """
    apart = _integral((weights.fine - weights.coarse).expand_as(values), terms)
    rise = values[..., -1] - values[..., 0]
    missing = ((weights.inner * slopes).sum(-1) - rise).abs() - blur
    return torch.maximum(torch.maximum(apart.abs().amax(-1), apart.sum(-1).abs()), missing)


def _jumps(nodes: torch.Tensor, variation: torch.Tensor, width: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """How many gaps have a jump, and the variance that `FIGURES` calls doubt, (p, q) each.

    Two jumps in one gap look like one, to the coarser rule too. Where jumps are strewn over the path at random, the
    chance of a second one is half of their density times the gap. Two at random places then put a sixth of what changes
    in the gap to the wrong element in the mean, taken as a fifth here; one outside the nodes is not seen at all.
    """
    gaps, total, largest = nodes.diff(), variation.sum(-2), variation.amax(-2)
    count = total.sum(-1) ** 2 / (total**2).sum(-1).clamp_min(torch.finfo(total.dtype).tiny)
    shared = ((largest * gaps / 5) ** 2 * gaps / 2).sum(-1)
    unseen = largest.amax(-1) ** 2 * 2 * nodes[0] ** 3 / 3
    return count, width * (shared + unseen)
