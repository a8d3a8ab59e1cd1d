"""Short probes of what an attribution needs of a device: ``python -m torus.explain.probes``.

Each says whether it holds, with figures, in seconds. They are what to run first on a device, a model or a version that
is new; the exit status is 1 where one does not hold.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from torus.backend import device as tpu
from torus.cli.texts import table
from torus.explain.run import explain


@dataclass(frozen=True)
class Finding:
    """What a probe found: whether it holds, and the figures that say so."""

    holds: bool
    figures: str


def unregistered_ops() -> Finding:
    """Every op of a forward and a backward pass through usual layers has a program on the device."""
    before = tpu.fallbacks()
    for model, x in _models():
        explain(model, x, 0, method="saliency")
    tpu.synchronize()
    fell = [op for op, count in tpu.fallbacks().items() if count > before.get(op, 0)]
    return Finding(not fell, ", ".join(fell) or "no op ran on the CPU")


def scalar_leak(scalars: int = 5000) -> Finding:
    """Scalars that change with each call make no program and keep no memory."""
    x = torch.ones(8, device="tpu")

    def scale(count: int) -> None:
        for index in range(count):
            x.mul_(1 + index / 1e6)
        tpu.synchronize()

    scale(2)
    grown, compiles = _cost(lambda: scale(scalars))
    return Finding(not grown and not compiles, f"{scalars} scalars: {grown} bytes, {compiles} compiles")


def tolerances() -> Finding:
    """Integrated gradients to another tolerance, with more or fewer steps, run the programs that are there."""
    model, x = _models()[0]

    def run(*tolerances: float) -> None:
        for tolerance in tolerances:
            explain(model, x, 0, method="integrated_gradients", tol=tolerance)

    run(1e-3)
    _, compiles = _cost(lambda: run(1e-1, 1e-2, 1e-3))
    return Finding(not compiles, f"3 tolerances: {compiles} compiles")


def memory(calls: int = 50) -> Finding:
    """Memory is flat over repeated calls, and nothing is left on the model."""
    model, x = _models()[0]

    def run(calls: int) -> None:
        for _ in range(calls):
            explain(model, x, 0, method="input_x_gradient")

    run(1)
    grown, compiles = _cost(lambda: run(calls))
    left = sum(len(module._forward_hooks) + len(module._backward_hooks) for module in model.modules())
    return Finding(grown <= 0 and not compiles and not left, f"{calls} calls: {grown} bytes, {compiles} compiles")


def autograd() -> Finding:
    """Gradients are those of the CPU, also second ones, and an exception in a backward hook is a Python exception."""
    wrong = [name for name, function in _SMOKE.items() if not _agrees(function)]
    if not _hook_raises():
        wrong.append("an exception in a backward hook")
    return Finding(
        not wrong, ", ".join(wrong) or f"{len(_SMOKE)} functions, twice differentiated, and a hook that raises"
    )


PROBES: dict[str, Callable[[], Finding]] = {
    probe.__name__: probe for probe in (unregistered_ops, scalar_leak, tolerances, memory, autograd)
}

_SMOKE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "matmul": lambda x: (x @ x.T).tanh(),
    "softmax": lambda x: x.softmax(-1) * x,
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "gelu": F.gelu,
    "index": lambda x: x[:, [2, 0, 2]] ** 3,
    "cumsum": lambda x: x.cumsum(0).sin(),
    "where": lambda x: torch.where(x > 0, x**2, x**3),
    "conv": lambda x: F.conv1d(x[None], x[:, None, :3], groups=len(x)).exp(),
    "max_pool": lambda x: F.max_pool1d(x[None] ** 3, 2),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x.exp()),
}


def _agrees(function: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """First and second gradients on the device are as near to float64 ones as float32 allows."""
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    expected = _gradients(function, x.double())
    found = _gradients(function, x.to("tpu"))
    return all(torch.allclose(f.cpu().double(), e, rtol=1e-4, atol=1e-4) for f, e in zip(found, expected, strict=True))


def _gradients(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.requires_grad_()
    (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad((first**2).sum(), x)
    return first.detach(), second


def _hook_raises() -> bool:
    x = torch.ones(2, device="tpu", requires_grad=True)
    x.register_hook(_refuse)
    try:
        (x * 2).sum().backward()
    except _RefusedError:
        return True
    return False


class _RefusedError(Exception):
    """What the hook of the probe raises."""


def _refuse(gradient: torch.Tensor) -> None:
    raise _RefusedError


def _models() -> list[tuple[nn.Module, torch.Tensor]]:
    """A perceptron, a convolutional network and an encoder, each with examples, on the device."""
    perceptron = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3))
    convolutional = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 1), nn.Flatten(), nn.Linear(64, 3)
    )
    encoder = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Flatten(), nn.Linear(32, 3))
    shapes = ((2, 8), (2, 3, 8, 8), (2, 4, 8))
    models = (perceptron, convolutional, encoder)
    return [(model.eval().to("tpu"), torch.randn(shape, device="tpu")) for model, shape in zip(models, shapes)]


def _cost(run: Callable[[], object]) -> tuple[int, int]:
    """Bytes that are alive after a run and were not before, and programs that it compiled."""
    tpu.synchronize()
    memory, compiles = tpu.memory_allocated(), tpu.counters()["compiles"]
    run()
    tpu.synchronize()
    return tpu.memory_allocated() - memory, tpu.counters()["compiles"] - compiles


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the probes and print what they found."""
    parser = argparse.ArgumentParser(prog="python -m torus.explain.probes", description=__doc__)
    parser.add_argument("probes", nargs="*", choices=[*PROBES, []], metavar="PROBE", help=", ".join(PROBES))
    chosen = parser.parse_args(arguments).probes or list(PROBES)
    found = {name: PROBES[name]() for name in chosen}
    print(table([[name, "holds" if f.holds else "DOES NOT HOLD", f.figures] for name, f in found.items()]))
    return 0 if all(finding.holds for finding in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
