"""Class activation maps of a layer whose output has channels and one or more dimensions of space: (b, c, ...).

All are ``relu(sum over channels of weight * output)``, and differ in the weights. The maps have one channel.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import interpolate

from torus.explain.function import Function
from torus.explain.methods import Attribution, Run
from torus.explain.points import Points, each

Size = int | tuple[int, ...] | None
Weights = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def grad_cam(
    function: Function, points: Points, baselines: Points, run: Run, *, size: Size = None, signed: bool = False
) -> Attribution:
    """Weights are gradients in the mean over space.

    Selvaraju, Cogswell, Das, Vedantam, Parikh, Batra: Grad-CAM (2017). Options: `size` of space to resample to,
    linearly; `signed` leaves out the ReLU.
    """
    return _maps(function, points, size, signed, lambda output, gradient: _over_space(torch.mean, gradient))


def grad_cam_plus_plus(
    function: Function, points: Points, baselines: Points, run: Run, *, size: Size = None, signed: bool = False
) -> Attribution:
    """Weights are the positive gradients, summed over space with the shares for which the target is an exponential.

    Chattopadhay, Sarkar, Howlader, Balasubramanian: Grad-CAM++ (2018), equation 19. Options as of `grad_cam`.
    """

    def weights(output: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        below = 2 * gradient**2 + gradient**3 * _over_space(torch.sum, output)
        share = torch.where(below != 0, gradient**2 / torch.where(below != 0, below, 1), 0)
        return _over_space(torch.sum, share * gradient.relu())

    return _maps(function, points, size, signed, weights)


def hires_cam(
    function: Function, points: Points, baselines: Points, run: Run, *, size: Size = None, signed: bool = False
) -> Attribution:
    """Weights are the gradients at each place.

    Draelos, Carin: Use HiResCAM instead of Grad-CAM for faithful explanations (2020). Options as of `grad_cam`.
    """
    return _maps(function, points, size, signed, lambda output, gradient: gradient)


def layer_cam(
    function: Function, points: Points, baselines: Points, run: Run, *, size: Size = None, signed: bool = False
) -> Attribution:
    """Weights are the positive gradients at each place.

    Jiang, Zhang, Hou, Cheng, Wei: LayerCAM, exploring hierarchical class activation maps for localization (2021).
    Options as of `grad_cam`.
    """
    return _maps(function, points, size, signed, lambda output, gradient: gradient.relu())


def _maps(function: Function, points: Points, size: Size, signed: bool, weights: Weights) -> Attribution:
    for tensor in points:
        if tensor.ndim < 3:
            raise ValueError(
                f"a class activation map needs channels and space, and what is explained has shape "
                f"{tuple(tensor.shape)}; `layer` names a convolution or what follows it"
            )
    _, gradients = function.grad(points)
    maps = each(lambda output, g: (weights(output, g) * output).sum(1, keepdim=True), points, gradients)
    maps = maps if signed else each(torch.relu, maps)
    return Attribution(maps if size is None else each(lambda found: _resampled(found, size), maps))


def _over_space(reduction: Callable[..., torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    return reduction(tensor, dim=tuple(range(2, tensor.ndim)), keepdim=True)


def _resampled(maps: torch.Tensor, size: int | tuple[int, ...]) -> torch.Tensor:
    modes = {3: "linear", 4: "bilinear", 5: "trilinear"}
    return interpolate(maps, size=size, mode=modes[maps.ndim], align_corners=False)
