"""Rules whose programs do not compile for a TPU: the one list of them, with the compiler's words."""

from __future__ import annotations

EXCEPTIONS: dict[str, str] = {}
"""Rule -> what the compiler says."""
