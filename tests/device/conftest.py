from __future__ import annotations

import torus  # noqa: F401  makes the device exist where the package is not installed
