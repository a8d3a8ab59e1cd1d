"""What can go wrong with a bundle."""

from __future__ import annotations


class BundleError(Exception):
    """A bundle cannot be made, read or run; the base of the others."""


class DamagedBundleError(BundleError):
    """A file of the bundle is missing or is not what was written."""


class NewerFormatError(BundleError):
    """The bundle has a format version that this version of torus does not know."""


class InputError(BundleError, ValueError):
    """An input is missing, unknown, or has another dtype or other sizes than the bundle takes."""
