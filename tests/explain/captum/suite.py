"""The pairs of a configuration and a method that Captum's own tests run, read from the installed package."""

from __future__ import annotations

import copy
import os
import re
import zlib
from dataclasses import dataclass
from typing import Any

import torch
from captum._utils.common import _get_module_from_name
from captum.attr import Attribution, NoiseTunnel

with torch.backends.__allow_nonbracketed_mutation():  # Captum sets flags, which PyTorch's own test helpers forbid
    from captum.testing.attr.helpers.test_config import config

FULL = os.environ.get("TORUS_CAPTUM") == "full"
SAMPLE = {
    "basic_single_target-DeepLift": "strict",
    "basic_multi_input_multi_target-ShapleyValueSampling": "fused",
    "conv_occlusion_with_perturbations_per_eval-Occlusion": "fused",
    "basic_layer_multiple_target-LayerConductance": "compiled",
}
"""The pairs of an ordinary test run, one of each kind, and the mode of each."""
_ONLY = re.compile(os.environ.get("TORUS_CAPTUM_ONLY", ""))
_PART, _, _PARTS = os.environ.get("TORUS_CAPTUM_SHARD", "1/1").partition("/")
MODES = ("strict", "fused", "compiled")


@dataclass(frozen=True)
class Pair:
    """A method with a model, a layer and arguments of Captum's."""

    name: str
    method: type[Attribution]
    entry: dict[str, Any]

    def attribute(self, device: str, dtype: torch.dtype, compiled: bool) -> Any:
        """What the method gives, with its convergence delta where it has one; all of it is new for each call."""
        net = copy.deepcopy(self.entry["model"]).to(device, dtype)
        model = torch.compile(net, backend="tpu") if compiled else net
        arguments = moved(copy.deepcopy(self.entry["attribute_args"]), device, dtype)
        layer = self.entry.get("layer")
        method = self.method(model, _layers(net, layer)) if layer else self.method(model)
        if self.entry.get("noise_tunnel"):
            method = NoiseTunnel(method)
        if method.has_convergence_delta():
            arguments["return_convergence_delta"] = True
        return method.attribute(**arguments)


def all_pairs() -> list[Pair]:
    """Every pair, in Captum's order."""
    return [
        Pair(f"{entry['name']}{'-noise' if entry.get('noise_tunnel') else ''}-{method.__name__}", method, entry)
        for entry in config
        for method in entry["algorithms"]
    ]


def chosen() -> list[tuple[Pair, str]]:
    """The pairs and modes of this run."""
    pairs = all_pairs()
    wanted = [(p, m) for p in pairs for m in MODES] if FULL else [(p, SAMPLE.get(p.name, "")) for p in pairs]
    return [(pair, mode) for pair, mode in wanted if mode and _ONLY.search(pair.name) and _mine(pair)]


def _mine(pair: Pair) -> bool:
    return zlib.crc32(pair.name.encode()) % int(_PARTS) == int(_PART) - 1


def moved(value: Any, device: str, dtype: torch.dtype) -> Any:
    """Tensors of an argument on the device, floating ones in the dtype."""
    if isinstance(value, torch.Tensor):
        wanted = dtype if value.is_floating_point() else value.dtype
        return value.detach().to(device, wanted).requires_grad_(value.requires_grad)
    if isinstance(value, tuple | list):
        return type(value)(moved(item, device, dtype) for item in value)
    return {k: moved(v, device, dtype) for k, v in value.items()} if isinstance(value, dict) else value


def _layers(net: torch.nn.Module, names: Any) -> Any:
    return [_layers(net, name) for name in names] if isinstance(names, list) else _get_module_from_name(net, names)
