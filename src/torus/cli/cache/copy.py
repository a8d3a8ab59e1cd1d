"""``torus cache copy``: what one cache has and another lacks."""

from __future__ import annotations

import argparse
import sys

from torus.cli import CommandError, texts
from torus.cli.cache.places import open_place
from torus.runtime.cache_errors import BadEntry
from torus.runtime.tier import BadSignature, Tier


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """From where to where."""
    parser.add_argument("source", metavar="SRC", help="the cache that is read")
    parser.add_argument("target", metavar="DST", help="the cache that is added to; it is made if need be")


def run(args: argparse.Namespace) -> int:
    """Copy; 1 if anything was bad, which is left out."""
    source, target = open_place(args.source), open_place(args.target, create=True)
    if source.where == target.where:
        raise CommandError(f"{args.source} and {args.target} are the same cache")
    there = {kept.key for kept in target.entries()}
    missing = [kept for kept in source.entries() if kept.key not in there]
    bad, size = 0, 0
    for number, kept in enumerate(missing, 1):
        _progress(f"program {number} of {len(missing)}, {texts.size(size)}")
        copied = _copy_program(source, target, kept.key)
        size += kept.size if copied else 0
        bad += not copied
    signatures, bad_signatures = _copy_signatures(source, target)
    _progress("")
    copied_programs = texts.plural(len(missing) - bad, "program")
    counted = f"{copied_programs} ({texts.size(size)}) and {texts.plural(signatures, 'signature')}"
    left_out = f"; {bad + bad_signatures} bad, left out" if bad + bad_signatures else ""
    print(f"copied {counted} from {source.where} to {target.where}{left_out}")
    return 1 if left_out else 0


def _copy_program(source: Tier, target: Tier, key: str) -> bool:
    """False for a bad entry."""
    try:
        entry = source.peek(key)
    except BadEntry as error:
        _progress("")
        print(f"bad: {key}: {error}", file=sys.stderr)
        return False
    if entry is not None:  # it may have been removed meanwhile
        target.store(key, entry.header, entry.payload)
    return True


def _copy_signatures(source: Tier, target: Tier) -> tuple[int, int]:
    """How many were copied, and how many are bad."""
    there = target.signature_keys()
    copied = bad = 0
    for key, found in source.signatures():
        if isinstance(found, BadSignature):
            bad += 1
        elif key not in there:
            target.add_signature(key, found.program, found.metadata)
            copied += 1
            _progress(f"signature {copied}")
    return copied, bad


def _progress(text: str) -> None:
    """Show where we are, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
