"""Gradients that integrated gradients need: pieces cut where it matters, against fixed Gauss-Legendre steps.

Each model is explained to the completeness gap that 256 fixed steps leave, or to 2e-6 where that is below what float32
can tell. Ours stops by itself only when its estimate of the worst element's error is that small too, which fixed steps
do not tell: both numbers are shown. The error of elements is taken from a float64 run with a tenth of the tolerance.
"""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.explaining import models
from benchmarks.places import Place
from benchmarks.report import Figure, Result
from benchmarks.worker import Worker

GROUP = "explain-gradients"
STEPS, MORE_STEPS = 256, 512
LEAST_GAP, TOLERANCE = 2e-6, 1e-3
MOST_RATIO = 0.333
SHAPES = {"G7-K15, 4 pieces": (7, 4), "G7-K15, 2": (7, 2), "G5-K11, 4": (5, 4), "G10-K21, 2": (10, 2)}
"""Nodes of the Gauss rule and pieces in one call; the first is the default."""
DEFAULT = next(iter(SHAPES.values()))


def measure(_: Place, model: str, quick: bool) -> dict[str, Any]:
    """Gaps of fixed steps, and gradients of ours for each shape, to their gap and to the tolerance."""
    module, x = models.makers(quick)[model]()
    gaps = {steps: _fixed(module, x, steps) for steps in (STEPS, MORE_STEPS)}
    same = max(gaps[STEPS], LEAST_GAP)
    shapes = dict(list(SHAPES.items())[:1]) if quick else SHAPES
    good = {name: _ours(module, x, TOLERANCE, shape) for name, shape in shapes.items()}
    ends = {
        "to_gap": _until(module, x, same),
        "to_gap_and_error": _ours(module, x, same, DEFAULT).certificate.gradients,
    }
    first = next(iter(good.values()))
    exact = _ours(module.double(), x.double(), TOLERANCE / 10, DEFAULT)
    change = (exact.values - exact.baseline_values).abs()
    error = float((first.attribution.double() - exact.attribution).abs().max() / change)
    return {
        "gap": gaps[STEPS],
        "gap_of_more": gaps[MORE_STEPS],
        **ends,
        "to_tolerance": {
            name: got.certificate.gradients if got.certificate.passed else None for name, got in good.items()
        },
        "error": error,
    }


def _until(module: Any, x: Any, gap: float) -> int:
    """Gradients after which ours first has a completeness gap; 0 where it never has."""
    step = DEFAULT[1] * (2 * DEFAULT[0] + 1)
    for most in range(step, MORE_STEPS, step):
        found = _ours(module, x, 0.0, DEFAULT, most=most).certificate
        if found.completeness_gap <= gap:
            return most
    return 0


def _ours(module: Any, x: Any, tolerance: float, shape: tuple[int, int], **more: int) -> Any:
    from torus.explain import explain

    options = {"gauss": shape[0], "pieces": shape[1], "tol": tolerance, **more}
    return explain(module, x, models.TARGET, method="integrated_gradients", **options)


def _fixed(module: Any, x: Any, steps: int) -> float:
    """The relative completeness gap of a fixed number of steps."""
    import numpy as np
    import torch

    from torus.explain import model_function

    function = model_function(module, x, models.TARGET)
    nodes, weights = (torch.from_numpy(array).float() for array in np.polynomial.legendre.leggauss(steps))
    parts = ((nodes + 1) / 2).view(-1, *[1] * (x.ndim - 1))
    _, (gradient,) = function.grad((parts * x,))
    change = function.value((x,)) - function.value((0 * x,))
    total = (weights.view(parts.shape) / 2 * gradient * x).double().sum()
    return float((total - change).abs() / change.abs())


def run(quick: bool) -> Result:
    """Measure on the CPU, one thread."""
    with Worker("tpu") as worker:
        names = list(models.makers(quick))
        found = {name: worker.call(f"{__name__}:measure", model=name, quick=quick) for name in names}
    default = next(iter(SHAPES))
    missed = [name for name in names if found[name]["gap_of_more"] > TOLERANCE]
    reached = [name for name in missed if found[name]["to_tolerance"][default] is not None]
    ratios = {how: [f[how] / STEPS or float("inf") for f in found.values()] for how in ("to_gap", "to_gap_and_error")}
    figures = [
        Figure(
            GROUP,
            f"ratio of gradients, ours / {STEPS} steps, {words}, median of {len(names)} models",
            statistics.median(ratios[how]),
            "x",
            limit,
            note=f"{min(ratios[how]):.2f}x to {max(ratios[how]):.2f}x",
        )
        for how, words, limit in (
            ("to_gap", "at their gap", MOST_RATIO),
            ("to_gap_and_error", "ended by gap and error", None),
        )
    ] + [
        Figure(
            GROUP,
            f"models under {TOLERANCE:g} of the {len(missed)} that {MORE_STEPS} steps leave above it",
            len(reached),
            "",
            len(missed),
            at_least=True,
        ),
        Figure(GROUP, "worst error of an element at that tolerance", max(f["error"] for f in found.values()), "", 2e-3),
    ]
    rows = [[name, *_row(found[name])] for name in names]
    columns = ["model", f"gap, {STEPS}", f"gap, {MORE_STEPS}", "to that gap", "and error", f"to {TOLERANCE:g}", "error"]
    return Result(figures + _shapes(found), columns, rows, found)


def _row(found: dict[str, Any]) -> list[str]:
    counts = [found["to_gap"], found["to_gap_and_error"], next(iter(found["to_tolerance"].values()))]
    return [f"{found['gap']:.1e}", f"{found['gap_of_more']:.1e}", *map(str, counts), f"{found['error']:.1e}"]


def _shapes(found: dict[str, Any]) -> list[Figure]:
    """What other shapes need, against the default: the geometric mean over models that all reach."""
    done = [f["to_tolerance"] for f in found.values() if None not in f["to_tolerance"].values()]
    names = list(done[0])
    return [
        Figure(
            GROUP,
            f"ratio of gradients to {TOLERANCE:g}, {name} / {names[0]}, mean",
            statistics.geometric_mean(each[name] / each[names[0]] for each in done),
            "x",
        )
        for name in names[1:]
    ]
