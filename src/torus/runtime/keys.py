"""What a compiled program depends on, as named components, so that a miss can say which of them changed."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FORMAT = 1
"""Version of everything the cache writes; raise it with any change of that."""

Components = dict[str, str]


def sha256(data: str | bytes) -> str:
    """The hexadecimal SHA-256 of text or bytes."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


@functools.cache
def cpu_features() -> str:
    """A hash of the instruction set extensions of this machine: the code of XLA:CPU uses all of them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = next((line for line in lines if line.lower().startswith(("flags", "features"))), None)
    if found is None:
        import platform

        found = f"{platform.machine()} {platform.processor()}"
    return sha256(found)[:16]


def environment(device: Any) -> Components:
    """The components that every program of `device` shares in this process."""
    from torus.runtime import jaxlib_adapter as adapter

    components = adapter.versions(device) | adapter.environment()
    if device.platform == "cpu":  # code for an accelerator runs beside any host
        components["cpu_features"] = cpu_features()
    return components | {"format": str(FORMAT)}


def program(stablehlo: str | bytes, options: dict[str, Any], shared: Components) -> Components:
    """The components of one program. JAX's own version is not one: what it made is the text."""
    components = {name: value for name, value in shared.items() if name != "jax"}
    return components | {"program": sha256(stablehlo), "options": json.dumps(options, sort_keys=True)}


def address(components: Components) -> str:
    """The content address of a program: a SHA-256 in hexadecimal."""
    return sha256(json.dumps(components, sort_keys=True))


def signature(key: bytes, shared: Components) -> bytes:
    """The 32-byte key of a caller's signature under these versions and flags."""
    return hashlib.sha256(json.dumps(shared, sort_keys=True).encode() + b"\0" + key).digest()


def differences(old: Components, new: Components) -> list[str]:
    """The names of the components that differ."""
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def source_fingerprint(*directories: str | Path, patterns: Iterable[str] = ("*.py",)) -> str:
    """A hash of the code under `directories`, for a caller's signatures: what an older code recorded must not be
    used.
    """
    digest = hashlib.sha256()
    for directory in map(Path, directories):
        for path in sorted(p for pattern in patterns for p in directory.rglob(pattern)):
            digest.update(path.relative_to(directory).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
