"""What is known about the quality of an attribution and what it took: what makes a result one to trust."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import torch

from torus.backend import device as tpu
from torus.explain.measure import Cost
from torus.explain.methods import Attribution
from torus.explain.points import total


@dataclass(frozen=True)
class Certificate:
    """Gaps and errors are relative to the change that is explained, the largest over the examples; None where the
    method promises none or it was not asked for.
    """

    method: str
    tolerance: float
    verdict: str
    completeness_gap: float | None
    error: float | None
    infidelity: float | None
    sensitivity: float | None
    without_rule: tuple[str, ...]
    precision: str
    precision_error: float | None
    device: str
    mode: str
    seed: int
    values: int
    gradients: int
    programs: int | None
    compiles: int | None
    host_reads: int | None
    seconds: float
    peak_memory: int | None
    versions: dict[str, str]

    @property
    def passed(self) -> bool:
        """Whether the method converged and the attributions sum to what they should, within the tolerance."""
        return not self.verdict and (self.completeness_gap is None or self.completeness_gap <= self.tolerance)

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {**dataclasses.asdict(self), "without_rule": list(self.without_rule), "passed": self.passed}

    def json(self) -> str:
        """The same as text."""
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        shown = {name: value for name, value in self.to_dict().items() if value not in (None, [], "")}
        width = max(map(len, shown))
        return "\n".join(f"{name:<{width}}  {_text(value)}" for name, value in shown.items())


def completeness_gap(attribution: Attribution) -> torch.Tensor | None:
    """How far each example's sum is from what it should be, relative to that, (b,); None where nothing is promised."""
    if attribution.expected is None:
        return None
    return relative(total(attribution.attributions) - attribution.expected, attribution.expected)


def relative(difference: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """The size of a difference in units of a reference. A reference of 0 counts as the smallest normal number."""
    scale = reference.abs().clamp_min(torch.finfo(reference.dtype).tiny)
    return difference.abs() / scale


def certify(
    method: str,
    attribution: Attribution,
    cost: Cost,
    *,
    tolerance: float,
    seed: int,
    device: torch.device,
    mode: str,
    precision: str,
    precision_error: float | None = None,
    gap: torch.Tensor | None = None,
    infidelity: float | None = None,
    sensitivity: float | None = None,
) -> Certificate:
    """The certificate of an attribution; `gap` is its `completeness_gap`, where that is known already."""
    gap = completeness_gap(attribution) if gap is None else gap
    return Certificate(
        method=method,
        tolerance=tolerance,
        verdict=attribution.verdict,
        completeness_gap=_worst(gap),
        error=_worst(attribution.error),
        infidelity=infidelity,
        sensitivity=sensitivity,
        without_rule=attribution.without_rule,
        precision=precision,
        precision_error=precision_error,
        device=_device_name(device),
        mode=mode,
        seed=seed,
        values=cost.values,
        gradients=cost.gradients,
        programs=cost.counted.get("programs"),
        compiles=cost.counted.get("compiles"),
        host_reads=cost.counted.get("host_reads"),
        seconds=cost.seconds,
        peak_memory=cost.peak_memory,
        versions=_versions(),
    )


def _worst(values: torch.Tensor | None) -> float | None:
    """The largest; a NaN counts as larger than everything, and so it is never hidden."""
    return None if values is None else float(values.cpu().max())


def _device_name(device: torch.device) -> str:
    return f"{device} ({tpu.get_device_name(device)})" if device.type == "tpu" else str(device)


def _versions() -> dict[str, str]:
    import torus

    return {"torus": torus.__version__, "torch": torch.__version__}


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
