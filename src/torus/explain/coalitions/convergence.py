"""When sampling may stop, and what is said when it could not."""

from __future__ import annotations

import math

import torch


def relative_error(standard_error: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
    """The worst standard error of an example's features (b, m), relative to the change that is explained: (b,).

    No error is 0 even where nothing changes.
    """
    largest = standard_error.amax(1)
    return torch.where(largest == 0, 0.0, largest / change.abs())


def worst(error: torch.Tensor) -> float:
    """The largest over the examples."""
    return float(error.max())


def not_converged(error: torch.Tensor, tolerance: float, drawn: int, what: str) -> str:
    """A verdict; empty where the error is under the tolerance. Errors fall with the root of what is drawn."""
    found = worst(error)
    if found <= tolerance:
        return ""
    needed = f"about {drawn * (found / tolerance) ** 2:,.0f}" if math.isfinite(found) else "more"
    return (
        f"after {drawn:,} {what} the standard error is {found:.2g} of the change that is explained, above the "
        f"tolerance of {tolerance:.2g}: {needed} {what} are needed"
    )
