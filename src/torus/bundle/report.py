"""A bundle in a few lines for people."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torus.bundle.arguments import show_range, sizes_known
from torus.bundle.manifest import FORMAT_VERSION, Manifest, Tensor


def report(manifest: Manifest) -> str:
    """Inputs, outputs, weights, programs and versions of a bundle, a line each."""
    lines = [f"{manifest.name}, a bundle of format version {FORMAT_VERSION}"]
    lines += _tensors("inputs", manifest.inputs)
    lines += [f"{'':10}{show_range(manifest, name)}" for name in manifest.dims]
    lines += _tensors("outputs", manifest.outputs)
    lines.append(f"{'weights':10}{_weights(manifest)}")
    lines.append(f"{'programs':10}{sizes_known(manifest)}; {_platforms(manifest)}")
    lines.append(f"{'made with':10}{', '.join(f'{name} {version}' for name, version in manifest.versions.items())}")
    return "\n".join(lines)


def _tensors(title: str, tensors: Iterable[Tensor]) -> list[str]:
    lines = [f"{tensor.name}: {tensor}" for tensor in tensors] or ["none"]
    return [f"{title if i == 0 else '':10}{line}" for i, line in enumerate(lines)]


def _weights(manifest: Manifest) -> str:
    stored = {weight.tensor: math.prod(weight.sizes) for weight in manifest.weights}
    text = f"{len(stored)} tensors, {sum(stored.values()):,} numbers"
    size = manifest.files[manifest.weights_file].bytes
    tied = [f"{w.name} = {w.tensor}" for w in manifest.weights if w.name != w.tensor]
    return f"{text}, {size:,} bytes" + (f"; tied: {', '.join(tied)}" if tied else "")


def _platforms(manifest: Manifest) -> str:
    lowered = " and ".join(dict.fromkeys(program.platform for program in manifest.programs))
    calls = sorted({call for program in manifest.programs for call in program.custom_calls})
    if calls:
        return f"only for {lowered}, whose kernels they call: {', '.join(calls)}"
    return f"lowered for {lowered}, and run on every platform"
