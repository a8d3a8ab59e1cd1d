"""DeepLIFT by op: multipliers whose products with the changes of an op's inputs sum to the change of its result.

Shrikumar, Greenside, Kundaje: Learning important features through propagating activation differences (2017), whose
Rescale rule is the one for elementwise functions of one input here. The other rules are discrete gradients in the sense
of numerical integration (Gonzalez: Time integration and discrete Hamiltonian systems, 1996): second-order accurate, and
complete for every pair of points. So is then their chain, however ops are connected, and in whatever batch.
"""

from __future__ import annotations

import torch

from torus.explain.relevance.discrete import midpoint, pointwise
from torus.explain.relevance.local import Local, Tensors, of_result
from torus.explain.relevance.order import extreme, larger, ordered, pool, running_extreme
from torus.explain.relevance.path import path
from torus.explain.relevance.products import choice, product, quotient
from torus.explain.relevance.rules import BILINEAR, ELEMENTWISE, LINEAR, SMOOTH
from torus.explain.relevance.scales import RECIPROCALS, scales
from torus.explain.relevance.softmax import log_softmax, log_sum_exp, softmax
from torus.explain.relevance.table import Rule, Table
from torus.explain.relevance.tape import Tape


@of_result
def same(local: Local, m: torch.Tensor) -> Tensors:
    """What autograd does not pass a gradient through depends on its input all the same."""
    return (m,)


RULES: dict[str, Rule] = {
    "alias detach": same,
    LINEAR + BILINEAR: midpoint,
    ELEMENTWISE: pointwise,
    SMOOTH: path,
    "where": choice,
    "div": quotient,
    "_softmax": softmax,
    "_log_softmax": log_softmax,
    "logsumexp": log_sum_exp,
    "all amax amin any max min": extreme,
    "cummax cummin": running_extreme,
    "fmax fmin maximum minimum": larger,
    "kthvalue median mode nanmedian sort topk": ordered,
    "adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d": pool,
    "max_pool2d_with_indices max_pool3d_with_indices": pool,
}
"""Ops to their rules. Views and other elementwise functions are `midpoint` and `pointwise`; what is left is `path`."""


def deeplift_table(tape: Tape) -> Table:
    """The rules for the ops of a tape."""
    factors = scales(tape, RECIPROCALS)
    table = Table(views=midpoint, pointwise=pointwise, otherwise=path)
    table.enter(RULES)
    table.enter({"mul": lambda local, given: product(local, given, factors)})
    return table
