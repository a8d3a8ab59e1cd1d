"""``torus cache prune``: remove what is old, or more than there should be."""

from __future__ import annotations

import argparse
import time

from torus import settings
from torus.cli import CommandError, texts
from torus.cli.cache.places import add_where, open_place
from torus.runtime.tier import Kept


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which cache, and what goes."""
    add_where(parser)
    older = "what was not used for so long: 12h, 30d, 4w (in a shared store: was written so long ago)"
    parser.add_argument("--older-than", type=texts.duration, metavar="TIME", help=older)
    most = "the least recently used until so much is left: 500MB, 2GiB"
    parser.add_argument("--max-size", type=_size, metavar="SIZE", help=most)
    parser.add_argument("--all", action="store_true", help="everything")
    parser.add_argument("--dry-run", action="store_true", help="only say what would go")


def run(args: argparse.Namespace) -> int:
    """Remove, and say how much."""
    if not args.all and args.older_than is None and args.max_size is None:
        raise CommandError("nothing to prune: give --older-than, --max-size or --all")
    tier = open_place(args.where)
    kept = tier.entries()
    going = kept if args.all else _chosen(kept, args.older_than, args.max_size)
    if going and not args.dry_run:
        tier.remove({entry.key for entry in going})
    verb = "would remove" if args.dry_run else "removed"
    freed = texts.size(sum(entry.size for entry in going))
    print(f"{verb} {len(going)} of {texts.plural(len(kept), 'program')}, {freed}, in {tier.where}")
    return 0


def _size(text: str) -> int:
    try:
        return settings.parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not understood; it accepts {error}") from None


def _chosen(kept: list[Kept], older_than: float | None, max_size: int | None) -> list[Kept]:
    oldest_first = sorted(kept, key=lambda entry: entry.used)
    limit = time.time() - older_than if older_than is not None else float("-inf")
    going = [entry for entry in oldest_first if entry.used < limit]
    rest = oldest_first[len(going) :]
    left = sum(entry.size for entry in rest)
    while rest and max_size is not None and left > max_size:
        entry = rest.pop(0)
        left -= entry.size
        going.append(entry)
    return going
