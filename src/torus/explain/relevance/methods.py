"""DeepLIFT and relevance propagation as methods."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torus.explain.function import Differentiable, Function
from torus.explain.methods import Attribution, Run
from torus.explain.points import Points, each, total
from torus.explain.relevance.deeplift import deeplift_table
from torus.explain.relevance.local import change
from torus.explain.relevance.lrp import SOFTMAX, Absorbed, Linear, LrpRules
from torus.explain.relevance.scales import ROOTS
from torus.explain.relevance.tape import converted, record
from torus.explain.relevance.walk import Walk


def deeplift(
    function: Function,
    points: Points,
    baselines: Points,
    run: Run,
    *,
    references: torch.Tensor | Sequence[torch.Tensor] | None = None,
    dtype: torch.dtype | None = None,
) -> Attribution:
    """Changes from the baselines times multipliers that are passed back op by op, summing to the change of the target.

    Shrikumar, Greenside, Kundaje: Learning important features through propagating activation differences (2017).
    `references` (k, ...), in the place of the baselines, are compared with every example one by one and the results
    averaged, as by Lundberg and Lee: A unified approach to interpreting model predictions (2017). The rules are in
    `torus.explain.relevance.deeplift`; ops without one are named, and the verdict names them if the sum is missed.
    `dtype` is what multipliers are computed in, the model's own if not given: in float64 rounding is no part of a gap.
    """
    program = _DeepLift(dtype)
    compared = [baselines] if references is None else _each_reference(references, points)
    found: list[Points] = []
    for done, base in enumerate(compared):
        found.append(function.apply(program, (*points, *base)))
        run.progress(done + 1, len(compared))
    *attributions, expected = (torch.stack(parts).mean(0) for parts in zip(*found, strict=True))
    return _attribution(tuple(attributions), expected, program.without_rule, run)


def lrp(
    function: Function,
    points: Points,
    baselines: Points,
    run: Run,
    *,
    rule: Linear = "epsilon",
    epsilon: float = 1e-9,
    gamma: float = 0.25,
    alpha: float = 1.0,
    beta: float = 0.0,
    dtype: torch.dtype | None = None,
) -> Attribution:
    """The target's value as relevance, passed back op by op to the inputs.

    Bach et al.: On pixel-wise explanations for non-linear classifier decisions by layer-wise relevance propagation
    (2015). Attention weights and the scales of norms are constants, as by Ali et al.: XAI for transformers, better
    explanations through conservative propagation (2022). `rule` and its numbers are those of
    `torus.explain.relevance.lrp.LrpRules`; z+ is ``rule="alpha_beta"``. Attributions should sum to the target less what
    biases and other constants take. The baselines have no part in it.
    """
    rules = LrpRules(rule, epsilon, gamma, alpha, beta, ROOTS | SOFTMAX)
    return _propagated(function, points, rules, dtype, run)


def attn_lrp(
    function: Function,
    points: Points,
    baselines: Points,
    run: Run,
    *,
    rule: Linear = "epsilon",
    epsilon: float = 1e-9,
    gamma: float = 0.25,
    dtype: torch.dtype | None = None,
) -> Attribution:
    """`lrp` with relevance through attention weights: a Taylor expansion of the softmax, and equal parts to the factors
    of every product.

    Achtibat et al.: AttnLRP, attention-aware layer-wise relevance propagation for transformers (2024).
    """
    return _propagated(function, points, LrpRules(rule, epsilon, gamma), dtype, run)


class _DeepLift:
    """From the points and the baselines to the attributions and the change that they should sum to."""

    def __init__(self, dtype: torch.dtype | None) -> None:
        self.dtype, self.without_rule = dtype, list[str]()

    def __call__(self, function: Differentiable, both: Points) -> Points:
        count = len(both) // 2
        tape = record(function, both[:count], self.dtype)
        points, baselines = converted(both[:count], self.dtype), converted(both[count:], self.dtype)
        if tape.output is None:
            return _nothing(points)
        with torch.no_grad():
            base = tape.replay(baselines)
            walk = Walk(deeplift_table(tape), self.without_rule)
            multipliers = walk.back(tape, torch.ones_like(tape.values[tape.output]), base)
            attributions = each(lambda m, x, b: m * change(x, b), multipliers, points, baselines)
            return *attributions, change(tape.values[tape.output], base[tape.output])


class _Propagation:
    """From the points to the attributions, and what they should sum to: the target less what was absorbed."""

    def __init__(self, rules: LrpRules, dtype: torch.dtype | None) -> None:
        self.rules, self.dtype, self.without_rule = rules, dtype, list[str]()

    def __call__(self, function: Differentiable, points: Points) -> Points:
        tape = record(function, points, self.dtype)
        if tape.output is None:
            return _nothing(points)
        values = tape.values[tape.output]
        table = self.rules.table(tape)
        absorbed = Absorbed(table)
        with torch.enable_grad():
            seed = torch.ones_like(values).requires_grad_()
            multipliers = Walk(table, self.without_rule).back(tape, seed, seen=absorbed)
            # Multipliers are linear in the seed, and rows are independent: the derivative is what each row lost.
            lost = torch.autograd.grad(absorbed.total.to(values) + 0 * seed.sum(), seed)[0]
        attributions = each(lambda m, x: m.detach() * x, multipliers, converted(points, self.dtype))
        return *attributions, values - lost


def _propagated(
    function: Function, points: Points, rules: LrpRules, dtype: torch.dtype | None, run: Run
) -> Attribution:
    program = _Propagation(rules, dtype)
    *attributions, expected = function.apply(program, points)
    return _attribution(tuple(attributions), expected, program.without_rule, run)


def _nothing(points: Points) -> Points:
    """The target does not depend on the points."""
    return *each(torch.zeros_like, points), torch.zeros_like(total(points))


def _each_reference(references: torch.Tensor | Sequence[torch.Tensor], points: Points) -> list[Points]:
    given = (references,) if isinstance(references, torch.Tensor) else tuple(references)
    if len(given) != len(points) or any(r.shape[1:] != x.shape[1:] for r, x in zip(given, points, strict=False)):
        raise ValueError(
            f"references of shapes {[tuple(r.shape) for r in given]} do not fit inputs of shapes "
            f"{[tuple(x.shape) for x in points]}: each has any number of rows, and rows like the input's"
        )
    return [each(lambda r, x: r[k].to(x).expand_as(x), given, points) for k in range(len(given[0]))]


def _attribution(attributions: Points, expected: torch.Tensor, names: Sequence[str], run: Run) -> Attribution:
    """A sum that is missed is put down to the ops without a rule."""
    verdict = ""
    if names:
        missed = (total(attributions) - expected).abs() > run.tolerance * expected.abs()
        if bool(missed.any()):
            verdict = f"the attributions do not sum to the change of the target: no rule for {', '.join(names)}"
    return Attribution(attributions, expected, without_rule=tuple(names), verdict=verdict)
