"""The table of methods: an entry makes one reachable from `explain`, the command line, the matrix and the tests."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import torch

from torus.explain.function import Function
from torus.explain.points import Points


@dataclass(frozen=True)
class Attribution:
    """What a method found: `attributions` like the points of the examples, and what it knows about their quality.

    `expected` (b,) is what each example's attributions should sum to, None for methods that promise no sum. `error` is
    the method's own estimate of how far an example's sum, or worst element, is off for want of points or samples.
    `standard_error` is like the attributions. `verdict` says in words what did not converge; empty when all did.
    `history` has ``(gradients or values so far, worst relative gap)``. `extras` are further results by name, such as
    the numbers of features that are not elements.
    """

    attributions: Points
    expected: torch.Tensor | None = None
    error: torch.Tensor | None = None
    standard_error: Points | None = None
    verdict: str = ""
    without_rule: tuple[str, ...] = ()
    history: tuple[tuple[int, float], ...] = ()
    extras: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """How to run: `tolerance` is relative to the change that is explained, `seed` decides every random draw."""

    tolerance: float = 1e-3
    seed: int = 0
    chunk: int | None = None
    progress: Callable[[int, int], None] = field(default=lambda done, total: None)

    def generator(self) -> torch.Generator:
        """A stream on the CPU, so that draws do not depend on the device."""
        return torch.Generator().manual_seed(self.seed)

    def random(self) -> random.Random:
        """Python's own stream, for permutations."""
        return random.Random(self.seed)


class Method(Protocol):
    """A method: from the function and the points of the inputs and the baselines (b rows each) to an attribution."""

    def __call__(
        self, function: Function, points: Points, baselines: Points, run: Run, **options: Any
    ) -> Attribution: ...


Found = TypeVar("Found", bound=Callable[..., Attribution])


def of_values(method: Found) -> Found:
    """Mark a method that asks for values only, which take less memory than gradients."""
    method.gradients = False  # type: ignore[attr-defined]
    return method


def holding(copies: Callable[..., int]) -> Callable[[Found], Found]:
    """Mark a method with the copies of the examples that its own tensors take at most, from its options."""

    def mark(method: Found) -> Found:
        method.holds = copies  # type: ignore[attr-defined]
        return method

    return mark


METHODS = {
    "saliency": ("torus.explain.gradients", "saliency", "absolute gradient"),
    "input_x_gradient": ("torus.explain.gradients", "input_x_gradient", "input times gradient"),
    "integrated_gradients": ("torus.explain.integrated", "integrated_gradients", "mean gradient on the path, times it"),
    "expected_gradients": ("torus.explain.sampled", "expected_gradients", "the same in the mean over random baselines"),
    "smoothgrad": ("torus.explain.sampled", "smoothgrad", "mean gradient under noise"),
    "grad_cam": ("torus.explain.cam", "grad_cam", "map of a layer, weighed by mean gradients"),
    "grad_cam_plus_plus": (
        "torus.explain.cam",
        "grad_cam_plus_plus",
        "the same with positive gradients, each its share",
    ),
    "hires_cam": ("torus.explain.cam", "hires_cam", "map of a layer, weighed by gradients at each place"),
    "layer_cam": ("torus.explain.cam", "layer_cam", "the same with positive gradients"),
    "exact_shapley": ("torus.explain.coalitions.shapley", "exact_shapley", "Shapley values from all coalitions"),
    "shapley_sampling": ("torus.explain.coalitions.shapley", "shapley_sampling", "Shapley values by permutations"),
    "kernel_shap": ("torus.explain.coalitions.kernel", "kernel_shap", "Shapley values by regression"),
    "feature_ablation": ("torus.explain.coalitions.ablation", "feature_ablation", "what is lost without a feature"),
    "occlusion": ("torus.explain.coalitions.occlusion", "occlusion", "what is lost without a window"),
    "lime": ("torus.explain.coalitions.lime", "lime", "coefficients of a linear model nearby"),
    "deeplift": ("torus.explain.relevance.methods", "deeplift", "changes times multipliers, passed back op by op"),
    "lrp": ("torus.explain.relevance.methods", "lrp", "relevance passed back op by op: epsilon, gamma or z+ rule"),
    "attn_lrp": ("torus.explain.relevance.methods", "attn_lrp", "relevance passed back by the rules for transformers"),
}
"""Name to (module, function, what it is)."""


def method(name: str) -> Method:
    """The method of a name. Raises ValueError that lists them all."""
    if name not in METHODS:
        raise ValueError(f"there is no method {name!r}; there are {', '.join(METHODS)}")
    module, function, _ = METHODS[name]
    return getattr(importlib.import_module(module), function)
