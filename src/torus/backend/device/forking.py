"""A forked child cannot use the client of its parent, whose threads are gone: it gets an error instead of hanging."""

from __future__ import annotations

import os
from typing import NoReturn

from torus import _C, runtime
from torus.runtime import client

MESSAGE = (
    "cannot use the tpu device in a forked child of a process that has already used it. Start the child with the "
    'method "spawn" (torch.multiprocessing.get_context("spawn"), DataLoader(multiprocessing_context="spawn")), or use '
    "the device for the first time after the fork."
)

_bad = False


def in_bad_fork() -> bool:
    """Whether this process is a forked child of one that has started the client."""
    return _bad


def check() -> None:
    """Raise RuntimeError in such a child."""
    if _bad:
        raise RuntimeError(MESSAGE)


def _refuse(*_: object) -> NoReturn:
    raise RuntimeError(MESSAGE)


def _after_fork_in_child() -> None:
    global _bad
    if not runtime.is_started():
        return
    _bad = True
    client.keep_for_ever()
    from torus.backend.eager import seam

    for name in seam.__all__:  # the core asks for these by name, each time
        setattr(seam, name, _refuse)
    _C.set_fuse_mode(0)  # what is recorded fails quietly
    _C.clear_programs()  # so that it has to ask


os.register_at_fork(after_in_child=_after_fork_in_child)
