"""An attribution as a bundle: a program that runs beside the model's own, without PyTorch and without its code."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from torus.explain.function import ModelFunction
from torus.explain.methods import Run, method
from torus.explain.points import Points, as_points
from torus.explain.run import Baselines, as_baselines
from torus.explain.target import Target


def export_attribution(
    model: Callable[..., Any],
    inputs: torch.Tensor | tuple[torch.Tensor, ...],
    path: str | os.PathLike[str],
    target: Target = None,
    *,
    method: str = "input_x_gradient",
    baselines: Baselines = None,
    layer: torch.nn.Module | str | None = None,
    arguments: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Write a bundle that attributes the target of a model to inputs of these shapes; see `torus.bundle`.

    The arguments are those of `torus.explain.explain`. The program takes the inputs, then a baseline for each; it gives
    attributions like the inputs, then the explained number, (b,), at the inputs and at the baselines, so that whoever
    runs it can judge the completeness gap. With `layer`, inputs and baselines are the layer's output.

    Raises:
        ValueError: the method decides by values how to go on, as adaptive and sampling ones do, which a program cannot.
    """
    from torus.backend.compile.export import export

    function = ModelFunction(model, as_points(inputs), target, arguments=arguments, layer=layer)
    points = tuple(tensor.detach() for tensor in function.origin())
    given = (*points, *as_baselines(baselines, points))
    export(_capture(_program(function, method, options), given, method), given, path)


def _program(function: ModelFunction, name: str, options: Mapping[str, Any]) -> Callable[..., Points]:
    run, chosen = Run(), method(name)

    def program(*given: torch.Tensor) -> Points:
        points, baselines = given[: len(given) // 2], given[len(given) // 2 :]
        found = chosen(function, points, baselines, run, **options)
        return (*found.attributions, function.value(points), function.value(baselines))

    return program


def _capture(program: Callable[..., Points], given: Points, name: str) -> torch.nn.Module:
    from torch.fx.experimental.proxy_tensor import make_fx

    try:
        return make_fx(program, tracing_mode="fake", _allow_non_fake_inputs=True)(*given)
    except (RuntimeError, NotImplementedError) as error:
        raise ValueError(
            f"{name} or the model decides by values how to go on, and a program cannot: {error}. Methods of a fixed "
            "number of passes can be exported: saliency, input_x_gradient, the CAMs, deeplift, lrp, attn_lrp"
        ) from error
