"""Loads, on a thread of its own, the programs that the last run of the same script used.

Loading an executable takes about a millisecond, so that the first step of a second process would wait for each of its
programs in turn, while before it, as a rule, the script loads data and weights. What a run used is written at its end,
one small file a script.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import secrets
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from torus import settings
from torus.runtime.disk_cache import DiskCache
from torus.runtime.programs import ProgramCache

_LIMIT = 4096
"""Programs a script; a run that uses more keeps the first ones."""

also: list[Callable[[], object]] = []
"""What else the first op of a process would have to wait for; called first, on the same thread."""

_stop = threading.Event()
_thread: threading.Thread | None = None


def script_identity() -> str | None:
    """What names this script in the cache: the path of its main file and its place among modules; None when there is no
    file.
    """
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if path is None:
        return None
    return hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]


def begin(cache: ProgramCache) -> None:
    """Start loading, and arrange for this run's programs to be written down. Does nothing the second time, or without a
    disk cache.
    """
    global _thread
    disk, script = cache.disk(), script_identity()
    if _thread is not None or disk is None or script is None or not settings.get("prefetch"):
        return
    path = disk.path / "scripts" / script
    _thread = threading.Thread(target=_load, args=(cache, path), name="torus-prefetch", daemon=True)
    _thread.start()
    atexit.register(_finish, cache, disk, path)


def _read(path: Path) -> list[tuple[str, int]]:
    try:
        return [(str(key), int(device)) for key, device in json.loads(path.read_text())]
    except (OSError, ValueError, TypeError):
        return []  # no run before this one, or a file that is not ours: nothing to load


def _load(cache: ProgramCache, path: Path) -> None:
    for prepare in (cache.warm_up, *also):
        with contextlib.suppress(Exception):
            prepare()
    for key, device in _read(path)[:_LIMIT]:
        if _stop.is_set():
            return
        with contextlib.suppress(Exception):  # whoever needs the program reports what is wrong with it
            cache.preload(key, device)


def _finish(cache: ProgramCache, disk: DiskCache, path: Path) -> None:
    _stop.set()
    if _thread is not None:
        _thread.join()
    used = list(cache.used)[:_LIMIT]
    if not used or used == _read(path):
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        aside = path.with_name(f".{secrets.token_hex(8)}")
        aside.write_text(json.dumps(used))
        aside.chmod(0o600)
        aside.replace(path)
