"""One call that explains a model: `explain`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torus.backend.device.modes import get_mode
from torus.explain import certificate, methods, modes
from torus.explain.budget import exceeded, in_bytes
from torus.explain.function import ModelFunction
from torus.explain.measure import Cost, Counted, measured
from torus.explain.methods import Attribution, Run
from torus.explain.metrics import quality
from torus.explain.place import placed
from torus.explain.points import Points, as_points
from torus.explain.precision import Guarded, current, guarded
from torus.explain.result import Explanation
from torus.explain.sharding import Devices
from torus.explain.target import Target

Baselines = torch.Tensor | Sequence[torch.Tensor] | float | None


def explain(
    model: Callable[..., Any],
    inputs: torch.Tensor | Sequence[torch.Tensor],
    target: Target = None,
    *,
    method: str = "saliency",
    baselines: Baselines = None,
    layer: torch.nn.Module | str | None = None,
    arguments: Mapping[str, Any] | None = None,
    tol: float = 1e-3,
    chunk: int | None = None,
    budget: int | str | None = None,
    devices: Devices = None,
    mode: str = "default",
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    metrics: bool = False,
    on_low_precision: str = "switch",
    **options: Any,
) -> Explanation:
    """Attribute the target of a model to its inputs, or to what a layer gives for them, with a certificate.

    Args:
        model: a module or function from the inputs, (b, ...) each, to an output with b rows.
        inputs: the examples, a tensor or several with b rows.
        target: which number of a row's output is explained; see `torus.explain.target.Target`.
        method: a name of `torus.explain.methods.METHODS`.
        baselines: like the inputs (or the layer's output), or with one row for all, or a number; zero if not given.
        layer: a module of the model, or its name, whose output is explained in the place of the inputs.
        arguments: keyword arguments for the model that are not explained.
        tol: what the method converges to, and what the certificate is judged by; relative to the change explained.
        chunk: copies of the examples that run at once at most.
        budget: bytes that the run may take, such as ``"2GiB"``; it chooses the chunk. See `torus.explain.budget`.
        devices: how many devices share the work, or their names; "auto" for all of them where they are faster,
            "processes" for the processes of `torch.distributed`. See `torus.explain.sharding`.
        mode: "strict", "fused", "compiled", or "default": as ops run now.
        seed: decides every random draw.
        progress: called with ``(done, total)``.
        metrics: also measure infidelity and sensitivity, by further runs; see `torus.explain.metrics`.
        on_low_precision: what to do where gradients in the precision that is set are further from those in the highest
            than the tolerance: "switch" to the highest, "refuse", or "ignore"; the certificate says how far they are.
        options: those of the method.

    Raises:
        ValueError: an argument does not fit; the message says which and what does.

    Example:
        >>> found = explain(model, x, target=3, method="integrated_gradients")
        >>> found.attribution, found.certificate.passed
    """
    chosen = methods.method(method)
    points = as_points(inputs)
    original = ModelFunction(model, points, target, arguments=arguments, layer=layer)
    run = Run(tolerance=tol, seed=seed, chunk=chunk, progress=progress or Run().progress)
    most = None if budget is None else in_bytes(budget)
    with modes.running(mode):
        origin = original.origin()
        gradients = getattr(chosen, "gradients", True)
        held = getattr(chosen, "holds", lambda **_: 0)(**options)
        place = placed(original, origin, run, budget=most, devices=devices, gradients=gradients, held=held)
        function, run = place.function(original, modes.prepared(mode)), place.run
        with measured(origin[0].device) as cost, contextlib.ExitStack() as stack:
            reference = as_baselines(baselines, origin)
            probed = Counted(place.probe(original), cost)
            precision = stack.enter_context(guarded(probed, origin, reference, run.tolerance, on_low_precision))
            found = chosen(Counted(function, cost), origin, reference, run, **options)
            values, baseline_values = original.value(origin), original.value(reference)
            gap = certificate.completeness_gap(found)  # here, so that the last program has it too when fused
        measures = quality(chosen, function, origin, reference, found, run, options) if metrics else {}
    if over := exceeded(most, cost.peak_memory):
        found = dataclasses.replace(found, verdict="; ".join(filter(None, (found.verdict, over))))
    return Explanation(
        attributions=found.attributions,
        certificate=certify(method, found, cost, run, origin, mode, gap=gap, guard=precision, **measures),
        points=origin,
        values=values,
        baseline_values=baseline_values,
        standard_error=found.standard_error,
        history=found.history,
        extras=found.extras | place.extras,
    )


def as_baselines(baselines: Baselines, points: Points) -> Points:
    """Baselines with the shapes of the points. Raises ValueError for what does not fit."""
    if baselines is None or isinstance(baselines, int | float):
        return tuple(torch.full_like(tensor, baselines or 0.0) for tensor in points)
    given = (baselines,) if isinstance(baselines, torch.Tensor) else tuple(baselines)
    if len(given) != len(points):
        raise ValueError(f"there are {len(given)} baselines for {len(points)} inputs")
    return tuple(_expanded(baseline, tensor) for baseline, tensor in zip(given, points, strict=True))


def _expanded(baseline: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    try:
        return baseline.to(tensor).expand_as(tensor)
    except RuntimeError as error:
        raise ValueError(
            f"a baseline of shape {tuple(baseline.shape)} does not fit an input of shape {tuple(tensor.shape)}"
        ) from error


def certify(
    name: str,
    found: Attribution,
    cost: Cost,
    run: Run,
    points: Points,
    mode: str,
    gap: torch.Tensor | None = None,
    guard: Guarded | None = None,
    **measures: float | None,
) -> certificate.Certificate:
    """The certificate of what a method found at these points."""
    device = points[0].device
    return certificate.certify(
        name,
        found,
        cost,
        tolerance=run.tolerance,
        seed=run.seed,
        device=device,
        mode=mode if mode != "default" or device.type != "tpu" else get_mode().name.lower(),
        precision=guard.precision if guard else current(device),
        precision_error=guard.error if guard else None,
        gap=gap,
        **measures,
    )
