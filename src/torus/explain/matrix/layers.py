"""Methods that attribute to a layer, or explain a neuron of it."""

from __future__ import annotations

from functools import partial
from typing import Any

from captum import attr

from torus.explain.matrix.cases import Table, joined
from torus.explain.matrix.inputs import ALL, BY_MODULES
from torus.explain.matrix.models import Setup

CASES = Table()
_STEPS = 8


@CASES.case("LayerActivation", *ALL)
def _(s: Setup) -> Any:
    return attr.LayerActivation(s.model, s.layer).attribute(s.x)


@CASES.case("LayerGradientXActivation", *ALL)
def _(s: Setup) -> Any:
    return attr.LayerGradientXActivation(s.model, s.layer).attribute(s.x, target=s.target)


def _along_a_path(s: Setup, method: type, **options: Any) -> Any:
    found = method(s.model, s.layer).attribute(s.x, s.baseline, target=s.target, n_steps=_STEPS, **options)
    return joined(*found) if isinstance(found, tuple) else found


_delta: dict[str, Any] = {"return_convergence_delta": True}
CASES.case("LayerIntegratedGradients", *ALL)(partial(_along_a_path, method=attr.LayerIntegratedGradients, **_delta))
CASES.case("LayerConductance", *ALL)(partial(_along_a_path, method=attr.LayerConductance, **_delta))
CASES.case("InternalInfluence", *ALL)(partial(_along_a_path, method=attr.InternalInfluence))


@CASES.case("LayerDeepLift", *ALL)
def _(s: Setup) -> Any:
    return attr.LayerDeepLift(s.model, s.layer).attribute(s.x, s.baseline, target=s.target)


@CASES.case("LayerDeepLiftShap", *ALL)
def _(s: Setup) -> Any:
    return attr.LayerDeepLiftShap(s.model, s.layer).attribute(s.x, s.distribution, target=s.target)


@CASES.case("LayerGradientShap", *ALL)
def _(s: Setup) -> Any:
    return attr.LayerGradientShap(s.model, s.layer).attribute(
        s.x, s.distribution, target=s.target, n_samples=3, stdevs=0.1
    )


@CASES.case("LayerFeatureAblation", *ALL)
def _(s: Setup) -> Any:
    return attr.LayerFeatureAblation(s.model, s.layer).attribute(s.x, target=s.target, layer_mask=s.layer_mask)


@CASES.case("LayerFeaturePermutation", *ALL)
def _(s: Setup) -> Any:
    """Of a function without a target: Captum would pick the target twice."""
    method = attr.LayerFeaturePermutation(lambda x: s.model(x)[:, 2], s.layer)
    return method.attribute(s.x, layer_mask=s.layer_mask)


@CASES.case("LayerGradCam", "cnn", covers=("LayerAttribution",))
def _(s: Setup) -> Any:
    found = attr.LayerGradCam(s.model, s.layer).attribute(s.x, target=s.target)
    return found, attr.LayerAttribution.interpolate(found, (16, 16), "bilinear")


@CASES.case("LayerLRP", *BY_MODULES)
def _(s: Setup) -> Any:
    return attr.LayerLRP(s.model, s.net.get_submodule("second")).attribute(s.x, target=s.target)


def _neuron(s: Setup, method: type) -> Any:
    return method(s.model, s.layer).attribute(s.x, s.neuron)


CASES.case("NeuronGradient", *ALL)(partial(_neuron, method=attr.NeuronGradient))
CASES.case("NeuronGuidedBackprop", *BY_MODULES)(partial(_neuron, method=attr.NeuronGuidedBackprop))
CASES.case("NeuronDeconvolution", *BY_MODULES)(partial(_neuron, method=attr.NeuronDeconvolution))


def _neuron_and_baseline(s: Setup, method: type, **options: Any) -> Any:
    return method(s.model, s.layer).attribute(s.x, s.neuron, s.baseline, **options)


def _neuron_and_distribution(s: Setup, method: type, **options: Any) -> Any:
    return method(s.model, s.layer).attribute(s.x, s.neuron, s.distribution, **options)


CASES.case("NeuronIntegratedGradients", *ALL)(
    partial(_neuron_and_baseline, method=attr.NeuronIntegratedGradients, n_steps=_STEPS)
)
CASES.case("NeuronDeepLift", *ALL)(partial(_neuron_and_baseline, method=attr.NeuronDeepLift))
CASES.case("NeuronDeepLiftShap", *ALL)(partial(_neuron_and_distribution, method=attr.NeuronDeepLiftShap))
CASES.case("NeuronGradientShap", *ALL)(
    partial(_neuron_and_distribution, method=attr.NeuronGradientShap, n_samples=3, stdevs=0.1)
)


@CASES.case("NeuronConductance", *ALL)
def _(s: Setup) -> Any:
    return attr.NeuronConductance(s.model, s.layer).attribute(
        s.x, s.neuron, s.baseline, target=s.target, n_steps=_STEPS
    )


@CASES.case("NeuronFeatureAblation", *ALL)
def _(s: Setup) -> Any:
    return attr.NeuronFeatureAblation(s.model, s.layer).attribute(s.x, s.neuron, s.baseline, feature_mask=s.mask)
