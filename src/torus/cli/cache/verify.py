"""``torus cache verify``: whether every entry is what it says."""

from __future__ import annotations

import argparse

from torus.cli import texts
from torus.cli.cache.places import add_where, open_place
from torus.runtime.cache_errors import BadEntry
from torus.runtime.tier import BadSignature, Tier


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which cache, and what to do with bad entries."""
    add_where(parser)
    parser.add_argument("--delete", action="store_true", help="remove bad entries")


def run(args: argparse.Namespace) -> int:
    """Print what is bad; 1 if anything is."""
    tier = open_place(args.where)
    entries, signatures = tier.entries(), list(tier.signatures())
    programs = {kept.key: reason for kept in entries if (reason := _fault(tier, kept.key))}
    records = [(key, found.reason) for key, found in signatures if isinstance(found, BadSignature)]
    for name, reason in [*programs.items(), *((f"signature {key.hex()[:12]}", reason) for key, reason in records)]:
        print(f"bad: {name}: {reason}")
    if args.delete:
        _delete(tier, set(programs), [key for key, _ in records])
    bad = len(programs) + len(records)
    counted = f"{texts.plural(len(entries), 'program')}, {texts.plural(len(signatures), 'signature')} in {tier.where}"
    print(f"{counted}: {f'{bad} bad' + (', removed' if args.delete else '') if bad else 'all good'}")
    return 1 if bad else 0


def _fault(tier: Tier, key: str) -> str | None:
    """What is wrong with a program."""
    try:
        tier.peek(key)
    except BadEntry as error:
        return str(error)
    return None


def _delete(tier: Tier, programs: set[str], signatures: list[bytes]) -> None:
    if programs:
        tier.remove(programs)
    for key in signatures:
        tier.remove_signature(key)
