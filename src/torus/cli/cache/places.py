"""Caches by the names that people give them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from torus import settings
from torus.cli import CommandError
from torus.runtime.disk_cache import DiskCache
from torus.runtime.object_cache import ObjectCache
from torus.runtime.stores import Folder, open_store
from torus.runtime.tier import Tier


def add_where(parser: argparse.ArgumentParser) -> None:
    """The argument that names a cache."""
    parser.add_argument("where", nargs="?", default="disk", metavar="CACHE", help="the cache (default: disk)")


def open_place(name: str, create: bool = False) -> Tier:
    """The cache that `name` means; unless `create`, it must exist where that is known. Raises CommandError and
    Unusable.
    """
    if name == "disk":
        return _disk(_disk_path(), create)
    if name == "shared":
        name = setting("shared_cache") or ""
        if not name:
            raise CommandError("there is no shared store; TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT names it")
    store = open_store(name)
    if isinstance(store, Folder):
        if any((store.path / file).exists() for file in ("index", "lock")):
            return _disk(store.path, create)
        if not create and not store.path.is_dir():
            raise CommandError(f"there is no cache at {store.path}")
    return ObjectCache(store)


def _disk(path: Path, create: bool) -> DiskCache:
    if not create and not path.is_dir():
        raise CommandError(f"there is no cache at {path} yet")
    return DiskCache(path, setting("cache_size"))


def _disk_path() -> Path:
    setting("cache_dir")
    path: Path | None = settings.program_cache_path()
    if path is None:
        raise CommandError("the cache on disk is disabled by TORCH_TPU_TIER2_COMPILATION_CACHE")
    return path


def setting(name: str) -> Any:
    """The value of a setting. Raises CommandError for one that is not understood."""
    try:
        return settings.get(name)
    except ValueError as error:
        raise CommandError(str(error)) from None


def find_key(tier: Tier, prefix: str) -> str | None:
    """The content address that begins so; None if none does. Raises CommandError if several do."""
    found = sorted(kept.key for kept in tier.entries() if kept.key.startswith(prefix.lower()))
    if len(found) > 1:
        raise CommandError(f"{prefix} is the beginning of {len(found)} keys in {tier.where}; give more of it")
    return found[0] if found else None
