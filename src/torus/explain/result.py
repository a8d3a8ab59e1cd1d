"""The result of `torus.explain.explain`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from torus.explain.certificate import Certificate
from torus.explain.points import Points
from torus.explain.report.reported import Reported


@dataclass(frozen=True)
class Explanation(Reported):
    """Attributions with the shapes of the inputs, on their device, and the certificate that says how good they are.

    `points` are what was explained (inputs or a layer's output); `values` and `baseline_values`, (b,), the explained
    number there. `history` is the way to convergence, for plots.
    """

    attributions: Points
    certificate: Certificate
    points: Points
    values: torch.Tensor
    baseline_values: torch.Tensor
    standard_error: Points | None = None
    history: tuple[tuple[int, float], ...] = ()
    extras: dict[str, Any] = field(default_factory=dict)

    @property
    def attribution(self) -> torch.Tensor:
        """The attributions of the only input. Raises ValueError where there are several."""
        if len(self.attributions) != 1:
            raise ValueError(f"there are {len(self.attributions)} inputs; see `attributions`")
        return self.attributions[0]
