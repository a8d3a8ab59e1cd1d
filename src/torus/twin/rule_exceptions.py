"""Rules that have no program for a TPU: the one list of them, with the compiler's words or the reason.

Their ops run on the host's CPU there, as any op without a rule does.
"""

from __future__ import annotations

_EIGENVALUES = "eigenvalues of general matrices: XLA has none for this platform"

EXCEPTIONS: dict[str, str] = {
    "aten::linalg_eig": _EIGENVALUES,
    "aten::_linalg_eigvals": _EIGENVALUES,
    "aten::linalg_eigvals.out": _EIGENVALUES,
}
"""Rule -> why not."""
