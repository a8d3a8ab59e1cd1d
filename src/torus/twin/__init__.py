"""A TPU that is not here: whether a model fits, how fast it could be, and what its programs are.

``plan(model, inputs, topology="v6e:2x2", step="train")`` answers in three steps of growing certainty; `Plan` has them.
"""

from __future__ import annotations

TYPE_CHECKING = False  # parts of this package need no PyTorch, and most callers only some of them
if TYPE_CHECKING:
    from typing import Any

    from torus.twin.planning import Plan as Plan
    from torus.twin.planning import plan as plan


def __getattr__(name: str) -> Any:
    if name in ("Plan", "plan"):
        from torus.twin import planning

        return getattr(planning, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
