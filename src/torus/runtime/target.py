"""What programs are made for: the device that runs them or, while a cache is being warmed, one that is not here.

With a target, programs are lowered, keyed and compiled for it as they would be on its host, and kept for it; what runs
here is the same program compiled for the host.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torus import settings
from torus.runtime import client
from torus.runtime.keys import Components


@dataclass(frozen=True)
class Target:
    """A device that is not here."""

    platform: str
    components: Components
    """What `torus.runtime.keys.environment` gives on it."""
    compile: Callable[[str | bytes, dict[str, Any]], bytes]
    """From StableHLO and options to an executable that a process with the device can load."""


@functools.cache
def target() -> Target | None:
    """The target of this process, which `warm_topology` names; None where programs are for its own device."""
    name = settings.get("warm_topology")
    return None if name is None else importlib.import_module("torus.twin.warm").target(name)


def platform_name() -> str:
    """The platform that programs are made for."""
    made_for = target()
    return client.platform_name() if made_for is None else made_for.platform
