"""Methods that attribute to the inputs."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from captum import attr

from torus.explain.matrix.cases import Table, joined
from torus.explain.matrix.models import Setup

CASES = Table()
ALL = ("mlp", "cnn", "lm")
BY_MODULES = ("mlp", "cnn")
"""Models for rules that are keyed on modules: Captum's have none for a decoder."""
_STEPS = 8


def _integrated(s: Setup, **options: Any) -> torch.Tensor:
    method = attr.IntegratedGradients(s.model)
    return joined(
        *method.attribute(s.x, s.baseline, target=s.target, n_steps=_STEPS, return_convergence_delta=True, **options)
    )


CASES.case("IntegratedGradients", *ALL)(_integrated)
CASES.case("IntegratedGradients: in batches", *ALL)(partial(_integrated, internal_batch_size=8))
for _rule in ("riemann_left", "riemann_right", "riemann_middle", "riemann_trapezoid"):
    CASES.case(f"IntegratedGradients: {_rule}", "mlp")(partial(_integrated, method=_rule))


@CASES.case("Saliency", *ALL)
def _(s: Setup) -> Any:
    return attr.Saliency(s.model).attribute(s.x, target=s.target)


@CASES.case("Saliency: signed", *ALL)
def _(s: Setup) -> Any:
    return attr.Saliency(s.model).attribute(s.x, target=s.target, abs=False)


@CASES.case("InputXGradient", *ALL)
def _(s: Setup) -> Any:
    return attr.InputXGradient(s.model).attribute(s.x, target=s.target)


@CASES.case("DeepLift", *ALL)
def _(s: Setup) -> Any:
    return joined(*attr.DeepLift(s.model).attribute(s.x, s.baseline, target=s.target, return_convergence_delta=True))


@CASES.case("DeepLiftShap", *ALL)
def _(s: Setup) -> Any:
    method = attr.DeepLiftShap(s.model)
    return joined(*method.attribute(s.x, s.distribution, target=s.target, return_convergence_delta=True))


@CASES.case("GradientShap", *ALL)
def _(s: Setup) -> Any:
    return joined(
        *attr.GradientShap(s.model).attribute(
            s.x, s.distribution, target=s.target, n_samples=4, stdevs=0.1, return_convergence_delta=True
        )
    )


@CASES.case("GuidedBackprop", *BY_MODULES)
def _(s: Setup) -> Any:
    return attr.GuidedBackprop(s.model).attribute(s.x, target=s.target)


@CASES.case("Deconvolution", *BY_MODULES)
def _(s: Setup) -> Any:
    return attr.Deconvolution(s.model).attribute(s.x, target=s.target)


@CASES.case("LRP", *BY_MODULES)
def _(s: Setup) -> Any:
    return joined(*attr.LRP(s.model).attribute(s.x, target=s.target, return_convergence_delta=True))


@CASES.case("GuidedGradCam", "cnn")
def _(s: Setup) -> Any:
    return attr.GuidedGradCam(s.model, s.layer).attribute(s.x, target=s.target)


@CASES.case("NoiseTunnel: integrated gradients", *ALL)
def _(s: Setup) -> Any:
    return attr.NoiseTunnel(attr.IntegratedGradients(s.model)).attribute(
        s.x, nt_samples=3, stdevs=0.1, baselines=s.baseline, target=s.target, n_steps=4
    )


def _tunnel(s: Setup, kind: str) -> Any:
    return attr.NoiseTunnel(attr.Saliency(s.model)).attribute(
        s.x, nt_type=kind, nt_samples=4, nt_samples_batch_size=2, stdevs=0.1, target=s.target
    )


for _kind in ("smoothgrad", "smoothgrad_sq", "vargrad"):
    CASES.case(f"NoiseTunnel: {_kind}", *ALL)(partial(_tunnel, kind=_kind))


@CASES.case("FeatureAblation", *ALL)
def _(s: Setup) -> Any:
    return attr.FeatureAblation(s.model).attribute(
        s.x, s.baseline, target=s.target, feature_mask=s.mask, perturbations_per_eval=2
    )


@CASES.case("FeaturePermutation", *ALL)
def _(s: Setup) -> Any:
    return attr.FeaturePermutation(s.model).attribute(s.x, target=s.target, feature_mask=s.mask)


@CASES.case("Occlusion", *ALL)
def _(s: Setup) -> Any:
    return attr.Occlusion(s.model).attribute(
        s.x, s.window, strides=s.strides, baselines=0, target=s.target, perturbations_per_eval=2
    )


@CASES.case("ShapleyValueSampling", *ALL)
def _(s: Setup) -> Any:
    return attr.ShapleyValueSampling(s.model).attribute(
        s.x, s.baseline, target=s.target, feature_mask=s.mask, n_samples=3, perturbations_per_eval=2
    )


@CASES.case("ShapleyValues", *BY_MODULES)
def _(s: Setup) -> Any:
    return attr.ShapleyValues(s.model).attribute(
        s.x, s.baseline, target=s.target, feature_mask=s.mask, perturbations_per_eval=4
    )


def _surrogate(s: Setup, method: type) -> Any:
    """Of each example by itself: the surrogate model of Captum is fitted to one."""
    return torch.cat(
        [
            method(s.model).attribute(
                s.x[i : i + 1],
                s.baseline[i : i + 1],
                target=int(s.target[i]),
                feature_mask=s.mask,
                n_samples=24,
                perturbations_per_eval=8,
                return_input_shape=False,
            )
            for i in range(2)
        ]
    )


CASES.case("Lime", *ALL, needs="sklearn")(partial(_surrogate, method=attr.Lime))
CASES.case("KernelShap", *ALL, needs="sklearn")(partial(_surrogate, method=attr.KernelShap))


@CASES.case("LimeBase", "mlp", needs="sklearn")
def _(s: Setup) -> Any:
    from captum._utils.models.linear_model import SkLearnLinearModel

    method = attr.LimeBase(
        s.model,
        SkLearnLinearModel("linear_model.Ridge"),
        lambda original, moved, _, **k: torch.exp(-(original - moved).square().sum() / 2),
        lambda original, **k: original + 0.5 * torch.randn_like(original),
        perturb_interpretable_space=False,
        from_interp_rep_transform=None,
        to_interp_rep_transform=lambda sample, original, **k: sample,
    )
    return method.attribute(s.x[:1], target=2, n_samples=24)


@CASES.case("DataLoaderAttribution", "mlp")
def _(s: Setup) -> Any:
    rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(s.x), batch_size=2)
    ablation = attr.FeatureAblation(lambda x: s.model(x)[:, :1])
    return attr.DataLoaderAttribution(ablation).attribute(rows)


@CASES.case("ProductBaselines", "mlp")
def _(s: Setup) -> Any:
    draw = attr.ProductBaselines([[0.0, 1.0], [0.5], [0.1, 0.2], [0.0], [1.0, 2.0], [0.3]])
    return attr.FeatureAblation(s.model).attribute(s.x, torch.tensor([draw()]).to(s.x), target=s.target)


_STATISTICS = ("Mean", "StdDev", "Min", "Max", "Sum", "Count", "Var", "MSE")


@CASES.case("Summarizer", "mlp", covers=(*_STATISTICS, "StatValue", "SummarizerSingleTensor"))
def _(s: Setup) -> Any:
    summary = attr.Summarizer([getattr(attr, name)() for name in _STATISTICS])
    for row in attr.Saliency(s.model).attribute(s.x, target=s.target):
        summary.update(row)
    return summary.summary


@CASES.case("ClassSummarizer", "mlp", covers=("CommonStats",))
def _(s: Setup) -> Any:
    summary = attr.ClassSummarizer(attr.CommonStats())
    found = attr.Saliency(s.model).attribute(s.x, target=s.target)
    for row, label in zip(found, (0, 1, 0, 1), strict=True):
        summary.update(row[None], label)
    return summary.summary, summary.class_summaries
