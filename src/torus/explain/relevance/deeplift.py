"""DeepLIFT by op: multipliers whose products with the changes of an op's inputs sum to the change of its result.

Shrikumar, Greenside, Kundaje: Learning important features through propagating activation differences (2017), whose
Rescale rule is the one for elementwise functions of one input here. The other rules are discrete gradients in the sense
of numerical integration (Gonzalez: Time integration and discrete Hamiltonian systems, 1996): second-order accurate, and
complete for every pair of points. So is then their chain, however ops are connected, and in whatever batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from torus.explain.relevance.local import Given, Local, Tensors, change, safe_ratio, vjp
from torus.explain.relevance.rules import BILINEAR, ELEMENTWISE, LINEAR, SMOOTH
from torus.explain.relevance.scales import RECIPROCALS, scales
from torus.explain.relevance.table import Table
from torus.explain.relevance.tape import Tape

NODES = 16
"""Gauss-Legendre nodes on the way between the two activations of an op: exact for polynomials of degree 31."""


def midpoint(local: Local, given: Given) -> Tensors:
    """The gradient halfway: exact for polynomials of degree two, and so splits every product evenly."""
    return vjp(local, local.middle, given)


def pointwise(local: Local, given: Given) -> Tensors:
    """The gradient halfway, and the least addition to it that makes it complete.

    With one input that is the secant: the Rescale rule.
    """
    result, result_b = local.outputs[0], local.outputs_b[0]
    assert result is not None and result_b is not None and given[0] is not None
    x, b = (tuple(t.expand(result.shape) for t in at) for at in (local.inputs, local.inputs_b))
    halfway = tuple((s + t) / 2 if s.is_floating_point() else s for s, t in zip(x, b, strict=True))
    ones = [torch.ones_like(local.number(result)), *[None] * (len(given) - 1)]
    changes = tuple(map(local.change, x, b))
    slopes = complete(vjp(local, halfway, ones), changes, local.number(result), local.number(result_b))
    return tuple(
        (given[0] * slope).sum_to_size(tensor.shape) for slope, tensor in zip(slopes, local.inputs, strict=True)
    )


def complete(slopes: Tensors, changes: Tensors, result: torch.Tensor, result_b: torch.Tensor) -> Tensors:
    """Slopes, elementwise, whose products with the changes sum to the change of the result.

    Where what is missing is no more than the rounding of the results, slopes are as they were: a secant of two points
    that are close is less exact than the gradient between them.
    """
    slopes = tuple(torch.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0) for slope in slopes)
    parts = tuple(slope * step for slope, step in zip(slopes, changes, strict=True))
    missing = change(result, result_b) - sum(parts)
    size = result.abs() + result_b.abs() + sum(part.abs() for part in parts)
    missing = torch.where(missing.abs() <= torch.finfo(missing.dtype).eps * size, 0.0, missing)
    longest = torch.stack([step.abs() for step in changes]).amax(0)
    shares = tuple(safe_ratio(step, longest, 0.0) for step in changes)
    length = longest * sum(share * share for share in shares)
    addition = safe_ratio(missing, length, 0.0)
    return tuple(slope + addition * share for slope, share in zip(slopes, shares, strict=True))


def path(local: Local, given: Given) -> Tensors:
    """The average gradient on the straight line between the two activations (Aumann-Shapley values of the op).

    What Gauss-Legendre nodes miss of the change of each element of the result is made good by a factor for it.
    """
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    places = [_on_the_way(local, (1 + float(node)) / 2) for node in nodes]
    shares = [float(weight) / 2 for weight in weights]
    given = [None if m is None else m * f for m, f in zip(given, _factors(local, places, shares), strict=True)]
    found = [vjp(local, place, given) for place in places]
    return tuple(sum(share * part for share, part in zip(shares, parts)) for parts in zip(*found))


def _on_the_way(local: Local, part: float) -> Tensors:
    """Inputs between the baselines (0) and the points (1); integers are those of the nearer end."""
    return tuple(
        b + part * change(x, b) if x.is_floating_point() else (x if part > 0.5 else b)
        for x, b in zip(local.inputs, local.inputs_b, strict=True)
    )


def _factors(local: Local, places: Sequence[Tensors], shares: Sequence[float]) -> list[torch.Tensor | float]:
    """The change of each result over what the nodes give for it; 1 where that is 0 or cannot be had."""
    try:
        found = [_derivative(local, place) for place in places]
    except RuntimeError:  # the op's backward has no derivative
        return [1.0] * len(local.outputs)
    factors: list[torch.Tensor | float] = []
    for result, result_b, parts in zip(local.outputs, local.outputs_b, zip(*found), strict=True):
        if result is None or result_b is None or parts[0] is None:
            factors.append(1.0)
            continue
        factors.append(
            safe_ratio(change(result, result_b), sum(share * part for share, part in zip(shares, parts)), 1.0)
        )
    return [f if isinstance(f, float) else f.clamp(0, 2) for f in factors]


def _derivative(local: Local, place: Tensors) -> list[torch.Tensor | None]:
    """How the results change along the changes of the inputs, to first order at a place."""
    leaves = [t.detach().requires_grad_(t.is_floating_point()) for t in place]
    wanted = [(leaf, step) for leaf, step in zip(leaves, local.changes, strict=True) if leaf.requires_grad]
    with torch.enable_grad():
        results = local.step.run(leaves)
        kept = [isinstance(y, torch.Tensor) and y.requires_grad for y in results]
        chosen = [y for y, keep in zip(results, kept, strict=True) if keep]
        dual = [torch.zeros_like(y, requires_grad=True) for y in chosen]
        if not chosen:
            return [None] * len(results)
        back = torch.autograd.grad(chosen, [t for t, _ in wanted], dual, create_graph=True, materialize_grads=True)
        along = sum((g * step).sum() for g, (_, step) in zip(back, wanted, strict=True))
        found = iter(torch.autograd.grad(along, dual, materialize_grads=True, allow_unused=True))
    return [next(found) if keep else None for keep in kept]


DEEPLIFT = Table(views=midpoint, pointwise=pointwise, otherwise=path)
DEEPLIFT.rule(LINEAR + BILINEAR)(midpoint)
DEEPLIFT.rule(ELEMENTWISE)(pointwise)
DEEPLIFT.rule(SMOOTH)(path)


@DEEPLIFT.rule("alias detach")
def same(local: Local, given: Given) -> Given:
    """What autograd does not pass a gradient through depends on its input all the same."""
    return given


def deeplift_table(tape: Tape) -> Table:
    """The rules for the ops of a tape."""
    factors = scales(tape, RECIPROCALS)
    return DEEPLIFT.changed("mul", lambda local, given: product(local, given, factors))


@DEEPLIFT.rule("div")
def quotient(local: Local, given: Given) -> Tensors:
    """``y = u / v`` as the product ``u = y v``, evenly split: ``(du - mean(y) dv) / mean(v)``.

    Its multipliers are bounded by the quotients, while those of ``u (1 / v)`` grow with the ratio of the two v: norms of
    a baseline of 0 have 1e6. Where v changes its sign its mean may be 0, and there it is the other way round.
    """
    if local.step.op._overloadname.endswith("_mode") and local.argument("rounding_mode"):
        return pointwise(local, given)
    if [place for place, _ in local.step.active] == [0]:
        return midpoint(local, given)
    (u, v), (u_b, v_b) = (_operands(local, at)[:2] for at in (local.inputs, local.inputs_b))
    same_sign = torch.as_tensor(v * v_b > 0)
    mean = torch.where(same_sign, v + v_b, 2.0) / 2
    reciprocal = torch.where(same_sign, 1 / mean, (1 / v + 1 / v_b) / 2)
    slope = torch.where(same_sign, (u / v + u_b / v_b) / 2 / mean, (u + u_b) / 2 / (v * v_b))
    return _factors_of(local, given, (reciprocal, -slope))


def product(local: Local, given: Given, factors: set[int]) -> Tensors:
    """Evenly split, unless one factor is a reciprocal: then it is a quotient."""
    scaling = [place for place, slot in local.step.active if slot in factors]
    if len(local.inputs) != 2 or len(scaling) != 1:
        return midpoint(local, given)
    ends = [_operands(local, at)[:2] for at in (local.inputs, local.inputs_b)]
    (u, s), (u_b, s_b) = (end if scaling[0] == 1 else end[::-1] for end in ends)
    weight = torch.where(s * s_b > 0, safe_ratio(s, s + s_b, 0.5), 0.5)
    slopes = weight * s_b + (1 - weight) * s, weight * u + (1 - weight) * u_b
    return _factors_of(local, given, slopes if scaling[0] == 1 else slopes[::-1])


def _factors_of(local: Local, given: Given, slopes: Sequence[torch.Tensor]) -> Tensors:
    """Multipliers of the active arguments, from elementwise slopes of all of them."""
    assert given[0] is not None
    places = [place for place, _ in local.step.active]
    return tuple((given[0] * slopes[p]).sum_to_size(t.shape) for p, t in zip(places, local.inputs, strict=True))


@DEEPLIFT.rule("where")
def choice(local: Local, given: Given) -> Tensors:
    """``c a + (1 - c) o`` of a condition that is 0 or 1: products again. Comparisons have secants like other functions."""
    if local.step.active[0][0] != 0:
        return midpoint(local, given)
    (c, a, o), (c_b, a_b, o_b) = (_operands(local, at) for at in (local.inputs, local.inputs_b))
    chosen = (local.number(c) + local.number(c_b)) / 2
    step = torch.where(c == c_b, 0.0, (a + a_b) / 2 - (o + o_b) / 2)
    return _factors_of(local, given, (step, chosen, 1 - chosen))


def _operands(local: Local, inputs: Tensors) -> list:
    """All arguments, those that are active taken from `inputs`."""
    active = dict(zip((place for place, _ in local.step.active), inputs, strict=True))
    return [active.get(place, argument) for place, argument in enumerate(local.step.arguments)]


def pull(function: Callable[[torch.Tensor], torch.Tensor], like: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    """The multiplier of the argument of a linear function, from that of its result."""
    leaf = torch.zeros_like(like).requires_grad_()
    with torch.enable_grad():
        return torch.autograd.grad(function(leaf), leaf, given, create_graph=given.requires_grad)[0]


def _first_wins(x_i: torch.Tensor, x_j: torch.Tensor, b_i: torch.Tensor, b_j: torch.Tensor) -> torch.Tensor:
    """The weight of the winner `i` at the points against `j`, the one at the baselines; `j` has the rest.

    The change of a maximum lies between the changes of the two, so that it is their mean with a weight in [0, 1]: the
    part of the straight way on which the larger of the two is `i`. No third element is needed, and a window that
    overlaps another has no part in it.
    """
    return safe_ratio(x_i - x_j, (x_i - x_j) + (b_j - b_i), 0.5)


def _winners(
    x: torch.Tensor, b: torch.Tensor, i: torch.Tensor, j: torch.Tensor, dim: int
) -> Callable[[torch.Tensor], torch.Tensor]:
    """The mean of what stands at `i` and `j` in a dimension, as a linear function."""
    weight = _first_wins(x.gather(dim, i), x.gather(dim, j), b.gather(dim, i), b.gather(dim, j))
    return lambda t: weight * t.gather(dim, i) + (1 - weight) * t.gather(dim, j)


@DEEPLIFT.rule(
    "adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d max_pool2d_with_indices max_pool3d_with_indices"
)
def pool(local: Local, given: Given) -> Tensors:
    """Maxima of windows, overlapping or not, by the indices of their winners."""
    x, b, m = local.inputs[0], local.inputs_b[0], given[0]
    spatial = 3 if "3d" in local.step.name else 2

    def flat(tensor: torch.Tensor | None) -> torch.Tensor:
        assert tensor is not None
        return tensor.flatten(-spatial)

    chosen = _winners(flat(x), flat(b), flat(local.outputs[1]), flat(local.outputs_b[1]), -1)
    return (pull(lambda t: chosen(flat(t)), x, flat(m)),)


@DEEPLIFT.rule("all amax amin any max min")
def extreme(local: Local, given: Given) -> Tensors:
    """Maxima and minima over whole dimensions."""
    x, b = local.number(local.inputs[0]), local.number(local.inputs_b[0])
    over = local.argument("dim") if any(a.name == "dim" for a in local.step.op._schema.arguments) else None
    dims = sorted(d % x.ndim for d in ([over] if isinstance(over, int) else over or range(x.ndim))) if x.ndim else []
    if not dims:
        return (given[0],)

    def flat(t: torch.Tensor) -> torch.Tensor:
        return t.movedim(dims, tuple(range(-len(dims), 0))).flatten(-len(dims))

    best = torch.argmax if local.step.name.split("::")[1] in ("amax", "any", "max") else torch.argmin
    chosen = _winners(flat(x), flat(b), best(flat(x), -1, keepdim=True), best(flat(b), -1, keepdim=True), -1)
    return (pull(lambda t: chosen(flat(t)).reshape(given[0].shape), x, given[0]),)


@DEEPLIFT.rule("cummax cummin")
def running_extreme(local: Local, given: Given) -> Tensors:
    """Maxima of all that came before."""
    (x,), (b,) = local.inputs, local.inputs_b
    return (pull(_winners(x, b, local.outputs[1], local.outputs_b[1], local.argument("dim")), x, given[0]),)


@DEEPLIFT.rule("fmax fmin maximum minimum")
def larger(local: Local, given: Given) -> Tensors:
    """The larger, or smaller, of two."""
    best = torch.argmax if local.step.name.endswith("max") or local.step.name.endswith("maximum") else torch.argmin
    x, b = (
        torch.stack(torch.broadcast_tensors(*map(local.number, _operands(local, at))), -1)
        for at in (local.inputs, local.inputs_b)
    )
    i, j = best(x, -1, keepdim=True), best(b, -1, keepdim=True)
    multiplier = pull(lambda t: _winners(x, b, i, j, -1)(t)[..., 0], x, given[0])
    places = [place for place, _ in local.step.active]
    return tuple(multiplier[..., p].sum_to_size(t.shape) for p, t in zip(places, local.inputs, strict=True))


@DEEPLIFT.rule("kthvalue median mode nanmedian sort topk")
def ordered(local: Local, given: Given) -> Tensors:
    """Values by rank: half to the element of that rank at either end, and what is missing to all by their change."""
    (x,), (b,) = local.inputs, local.inputs_b
    dim = local.argument("dim") % x.ndim
    keep = given[0].ndim == x.ndim
    m, y, y_b, i, j = (
        t if keep else t.unsqueeze(dim)
        for t in (given[0], local.outputs[0], local.outputs_b[0], local.outputs[1], local.outputs_b[1])
    )
    step = x - b
    halves = (step.gather(dim, i) + step.gather(dim, j)) / 2
    missing = (m * (y - y_b - halves)).sum(dim, keepdim=True)
    longest = step.abs().amax(dim, keepdim=True)
    share = safe_ratio(step, longest, 0.0)
    addition = safe_ratio(missing, longest * (share * share).sum(dim, keepdim=True), 0.0)
    return (pull(lambda t: (t.gather(dim, i) + t.gather(dim, j)) / 2, x, m) + addition * share,)


def _log_sum_exp(x: torch.Tensor, b: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """Weights whose products with the changes sum to that of the log-sum-exp: secants of exp and of log, in turn.

    Both are shifted by the largest of all, so that nothing overflows.
    """
    shift = torch.maximum(x.amax(dims, keepdim=True), b.amax(dims, keepdim=True))
    x, b = (t - torch.where(shift.isfinite(), shift, 0.0) for t in (x, b))
    e, e_b = x.exp(), b.exp()
    (inner,) = complete((((x + b) / 2).exp(),), (change(x, b),), e, e_b)
    total, total_b = e.sum(dims, keepdim=True), e_b.sum(dims, keepdim=True)
    log, log_b = x.logsumexp(dims, keepdim=True), b.logsumexp(dims, keepdim=True)
    (outer,) = complete((2 / (total + total_b),), (total - total_b,), log, log_b)
    return inner * outer


@DEEPLIFT.rule("logsumexp")
def log_sum_exp(local: Local, given: Given) -> Tensors:
    """See `_log_sum_exp`."""
    (x,), (b,) = local.inputs, local.inputs_b
    dims = local.argument("dim")
    dims = [dims] if isinstance(dims, int) else dims
    weights = _log_sum_exp(x, b, dims)
    return (weights * given[0].reshape(x.sum(dims, keepdim=True).shape),)


@DEEPLIFT.rule("_log_softmax")
def log_softmax(local: Local, given: Given) -> Tensors:
    """An input less the log-sum-exp."""
    (x,), (b,), (m,) = local.inputs, local.inputs_b, given
    dim = local.argument("dim")
    return (m - _log_sum_exp(x, b, [dim]) * m.sum(dim, keepdim=True),)


@DEEPLIFT.rule("_softmax")
def softmax(local: Local, given: Given) -> Tensors:
    """The exponential of the log-softmax, whose numbers stay small where those of a quotient of sums do not."""
    (x,), (b,), (m,) = local.inputs, local.inputs_b, given
    dim = local.argument("dim")
    z, z_b = x.log_softmax(dim), b.log_softmax(dim)
    (slope,) = complete((((z + z_b) / 2).exp(),), (change(z, z_b),), z.exp(), z_b.exp())
    m = m * slope
    return (m - _log_sum_exp(x, b, [dim]) * m.sum(dim, keepdim=True),)
