"""Two ways to integrate over [0, 1] from values and slopes at the same nodes, each with a coarser one inside.

Gauss-Kronrod is for smooth slopes. Those of networks with ReLU or maxima jump, which costs it most of its order; but
where slopes jump the values do not, and the straight lines through neighbouring nodes cross where the jump is. The
second way shares each gap there: exact where no gap has more than one jump of a piecewise linear function, of second
order where there is none.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.polynomial import legendre
from torch.nn.functional import pad


@dataclass(frozen=True)
class Weights:
    """Weights (..., k) for the slopes at k nodes, `coarse` those of a rule that reads every second node only; `inner`
    integrate from the first node to the last, which is the rise of the values from there to there.
    """

    fine: torch.Tensor
    coarse: torch.Tensor
    inner: torch.Tensor


@dataclass(frozen=True)
class Rule:
    """Nodes in (0, 1), (k,), and the weights for smooth slopes."""

    nodes: torch.Tensor
    smooth: Weights

    def to(self, like: torch.Tensor) -> Rule:
        """With the dtype and on the device of a tensor."""
        together = torch.stack([self.nodes, self.smooth.fine, self.smooth.coarse, self.smooth.inner])
        nodes, *weights = together.to(like.dtype).to(like.device)
        return Rule(nodes, Weights(*weights))


def gauss_kronrod(count: int) -> Rule:
    """The Gauss rule of `count` nodes within that of ``2 * count + 1``, in float64.

    Kronrod: Nodes and weights of quadrature formulas (1965). The new nodes are the roots of Stieltjes' polynomial, of
    degree ``count + 1``: its product with the Legendre polynomial of degree `count` is orthogonal to all of degree
    `count` and less.
    """
    nodes, *weights = (torch.from_numpy(array) for array in _gauss_kronrod(count))
    return Rule(nodes, Weights(*weights))


@functools.cache
def _gauss_kronrod(count: int) -> tuple[Any, ...]:
    """Nodes and the three kinds of weights. Arrays: tensors kept from a run without data would have none for ever."""
    gauss, gauss_weights = legendre.leggauss(count)
    x, w = legendre.leggauss(2 * count + 2)
    basis = legendre.legvander(x, count + 1)
    products = basis[:, :-1].T @ ((w * basis[:, count])[:, None] * basis)
    stieltjes = np.append(np.linalg.solve(products[:, :-1], -products[:, -1]), 1.0)
    added = legendre.legroots(stieltjes)
    added -= legendre.legval(added, stieltjes) / legendre.legval(added, legendre.legder(stieltjes))
    nodes = np.sort(np.concatenate([gauss, added]))
    coarse = np.zeros_like(nodes)
    coarse[1::2] = gauss_weights
    weights = _through(nodes, -1.0, 1.0), coarse, _through(nodes, nodes[0], nodes[-1])
    return (nodes + 1) / 2, *(array / 2 for array in weights)


def _through(nodes: Any, low: float, high: float) -> Any:
    """Weights that integrate the polynomial through all nodes from `low` to `high`."""
    integrals = [legendre.legval([low, high], legendre.legint(unit)) for unit in np.eye(len(nodes))]
    return np.linalg.solve(legendre.legvander(nodes, len(nodes) - 1).T, np.diff(integrals)[:, 0])


def crossing_lines(nodes: torch.Tensor, values: torch.Tensor, slopes: torch.Tensor, epsilon: float) -> Weights:
    """Weights (..., k) for values and slopes (..., k) at nodes (k,), where values are rounded by `epsilon`."""
    inner = _shared(nodes, values, slopes, epsilon)
    coarse = _shared(nodes[1::2], values[..., 1::2], slopes[..., 1::2], epsilon)
    return Weights(_with_ends(nodes, inner), _spread(_with_ends(nodes[1::2], coarse)), inner)


def _shared(nodes: torch.Tensor, values: torch.Tensor, slopes: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Each gap between the two nodes beside it so that the slopes add up to the rise; in halves where rounding of the
    values does not let that be seen.
    """
    gaps = nodes.diff()
    left, right = slopes[..., :-1], slopes[..., 1:]
    jump = left - right
    seen = jump.abs() > 4 * epsilon * values.abs()[..., 1:] / gaps
    share = ((values.diff() / gaps - right) / torch.where(seen, jump, 1.0)).clamp(0, 1)
    lefts = torch.where(seen, share, 0.5) * gaps
    return pad(lefts, (0, 1)) + pad(gaps - lefts, (1, 0))


def _with_ends(nodes: torch.Tensor, inner: torch.Tensor) -> torch.Tensor:
    """What is outside the nodes belongs to the first and the last."""
    return inner + pad(nodes[:1], (0, len(nodes) - 1)) + pad(1 - nodes[-1:], (len(nodes) - 1, 0))


def _spread(weights: torch.Tensor) -> torch.Tensor:
    """Weights of every second node as weights of all, (..., n) to (..., 2 n + 1)."""
    return pad(torch.stack([torch.zeros_like(weights), weights], -1).flatten(-2), (0, 1))
