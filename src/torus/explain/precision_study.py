"""How much attributions lose where products use fewer bfloat16 passes: ``python -m torus.explain.precision_study``.

Captum's methods run unmodified on the device in each precision and are compared with the CPU in float64. Without a TPU
the passes are computed one by one (`torch.tpu.precision`), so that a laptop shows what the matrix unit would.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from torus.backend.device.numerics import Precision, precision

PRECISIONS = tuple(value.name.lower() for value in Precision)

Attribute = Callable[[nn.Module, torch.Tensor, int], torch.Tensor]


class Network(nn.Module):
    """A small convolutional classifier; its activations have no corners, whose sides rounding would choose."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.GELU(), nn.Conv2d(16, 32, 3, padding=1))
        self.head = nn.Sequential(nn.GELU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(128, 64), nn.GELU())
        self.logits = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.logits(self.head(self.features(images)))
        return result


def _methods() -> dict[str, Attribute]:
    from captum import attr

    return {
        "Saliency": lambda m, x, t: attr.Saliency(m).attribute(x, target=t),
        "InputXGradient": lambda m, x, t: attr.InputXGradient(m).attribute(x, target=t),
        "IntegratedGradients": lambda m, x, t: attr.IntegratedGradients(m).attribute(x, target=t, n_steps=32),
        "LayerIntegratedGradients": lambda m, x, t: attr.LayerIntegratedGradients(m, m.features).attribute(
            x, target=t, n_steps=32
        ),
        "LayerGradCam": lambda m, x, t: attr.LayerGradCam(m, m.features).attribute(x, target=t),
    }


def study(methods: Sequence[str] | None = None, images: int = 4, seed: int = 0) -> dict[str, dict[str, float]]:
    """The error of each method in each precision: the largest difference, relative to the largest attribution."""
    torch.manual_seed(seed)
    reference = Network().eval().double()
    device = Network().eval().to("tpu")
    device.load_state_dict(reference.state_dict())
    x = torch.randn(images, 3, 8, 8).double().requires_grad_()
    chosen = {name: attribute for name, attribute in _methods().items() if methods is None or name in methods}
    return {name: _errors(attribute, reference, device, x) for name, attribute in chosen.items()}


def _errors(attribute: Attribute, reference: nn.Module, device: nn.Module, x: torch.Tensor) -> dict[str, float]:
    expected = attribute(reference, x, 3).detach()
    errors = {}
    for name in PRECISIONS:
        with precision(name):
            found = attribute(device, x.detach().float().to("tpu").requires_grad_(), 3).detach().cpu().double()
        errors[name] = float((found - expected).abs().max() / expected.abs().max())
    return errors


def table(errors: dict[str, dict[str, float]]) -> str:
    """The errors as text."""
    from torus.cli.texts import table as lay_out

    rows = [[name, *(f"{found[p]:.1e}" for p in PRECISIONS)] for name, found in errors.items()]
    return lay_out([["method", *PRECISIONS], *rows])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study and print it."""
    parser = argparse.ArgumentParser(prog="python -m torus.explain.precision_study", description=__doc__)
    parser.add_argument("--images", type=int, default=4, help="how many examples (default: 4)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and images")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the errors as JSON")
    options = parser.parse_args(arguments)
    errors = study(images=options.images, seed=options.seed)
    print(table(errors))
    if options.json:
        options.json.write_text(json.dumps(errors, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
