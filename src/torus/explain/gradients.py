"""Methods that read one gradient."""

from __future__ import annotations

import torch

from torus.explain.function import Function
from torus.explain.methods import Attribution, Run
from torus.explain.points import Points, each


def saliency(function: Function, points: Points, baselines: Points, run: Run, *, signed: bool = False) -> Attribution:
    """The absolute gradient at the inputs, or the gradient itself where `signed`.

    Simonyan, Vedaldi, Zisserman: Deep inside convolutional networks (2013).
    """
    _, gradient = function.grad(points)
    return Attribution(gradient if signed else each(torch.abs, gradient))


def input_x_gradient(function: Function, points: Points, baselines: Points, run: Run) -> Attribution:
    """The inputs, from the baselines, times the gradient there.

    Shrikumar, Greenside, Shcherbina, Kundaje: Not just a black box (2016).
    """
    _, gradient = function.grad(points)
    return Attribution(each(lambda x, b, g: (x - b) * g, points, baselines, gradient))
