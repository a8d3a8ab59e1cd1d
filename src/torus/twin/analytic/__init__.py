"""An estimate of a step from its StableHLO alone, in seconds and without a compiler."""

from torus.twin.analytic.estimating import estimate

__all__ = ["estimate"]
