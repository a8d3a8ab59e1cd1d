"""What the program cache raises and warns of."""

from __future__ import annotations


class CacheWarning(RuntimeWarning):
    """The program cache met something that it worked around."""


class CacheMiss(RuntimeError):
    """A program is not in the cache, and compiling is forbidden (``TORUS_CACHE_ONLY=1``)."""


class Unusable(Exception):
    """A place for programs cannot or must not be used; the text says why."""


class BadEntry(Exception):
    """An entry that must not be run; the text says why."""
