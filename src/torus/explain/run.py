"""One call that explains a model: `explain`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torus.backend import device as tpu
from torus.backend.device.modes import get_mode
from torus.explain import certificate, methods, modes
from torus.explain.budget import chunk_within, exceeded, in_bytes
from torus.explain.chunks import Chunked
from torus.explain.function import Function, ModelFunction
from torus.explain.measure import Cost, Counted, measured
from torus.explain.methods import Attribution, Run
from torus.explain.metrics import quality
from torus.explain.points import Points, as_points
from torus.explain.result import Explanation
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
    mode: str = "default",
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    metrics: bool = False,
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
        mode: "strict", "fused", "compiled", or "default": as ops run now.
        seed: decides every random draw.
        progress: called with ``(done, total)``.
        metrics: also measure infidelity and sensitivity, by further runs; see `torus.explain.metrics`.
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
        reference = as_baselines(baselines, origin)
        if most is not None:
            run = _within(most, original, origin, run, gradients=getattr(chosen, "gradients", True))
        with measured(origin[0].device) as cost:
            found = chosen(_prepared(original, mode, run, cost), origin, reference, run, **options)
        values, baseline_values = original.value(origin), original.value(reference)
        uncounted = _prepared(original, mode, run, Cost())
        measures = quality(chosen, uncounted, origin, reference, found, run, options) if metrics else {}
    if over := exceeded(most, cost.peak_memory):
        found = dataclasses.replace(found, verdict="; ".join(filter(None, (found.verdict, over))))
    return Explanation(
        attributions=found.attributions,
        certificate=certify(method, found, cost, run, origin, mode, **measures),
        points=origin,
        values=values,
        baseline_values=baseline_values,
        standard_error=found.standard_error,
        history=found.history,
        extras=found.extras,
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


def _within(budget: int, function: Function, points: Points, run: Run, *, gradients: bool) -> Run:
    """A run whose chunk is as large as the budget allows, and no larger than the one that was asked for."""
    chunk = chunk_within(budget, function, points, gradients=gradients)
    return dataclasses.replace(run, chunk=min(chunk, run.chunk or chunk))


def _prepared(original: ModelFunction, mode: str, run: Run, cost: Cost) -> Function:
    """The function as the method sees it: counted, in chunks, compiled if asked for."""
    function: Function = modes.Compiled(original) if mode == "compiled" else original
    if run.chunk is not None:
        function = Chunked(function, run.chunk)
    return Counted(function, cost)


def certify(
    name: str, found: Attribution, cost: Cost, run: Run, points: Points, mode: str, **measures: float | None
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
        precision=str(tpu.get_precision().name).lower() if device.type == "tpu" else "highest",
        **measures,
    )
