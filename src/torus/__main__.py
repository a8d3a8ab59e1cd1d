"""``python -m torus`` is the command `torus`."""

from __future__ import annotations

import sys

from torus.cli import main

if __name__ == "__main__":
    sys.exit(main())
