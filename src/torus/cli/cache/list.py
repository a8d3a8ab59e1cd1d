"""``torus cache list``: the programs in a cache."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from torus.cli import texts
from torus.cli.cache.places import add_where, open_place
from torus.runtime.cache_errors import BadEntry
from torus.runtime.tier import Kept, Tier

_SORTS = {"used": ("used", True), "size": ("size", True), "age": ("created", False), "name": ("summary", False)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which cache, in which order, and how many."""
    add_where(parser)
    parser.add_argument(
        "--sort",
        choices=list(_SORTS),
        default="used",
        help="last used first (the default; in a shared store last written), largest, oldest, or by name",
    )
    parser.add_argument("--limit", type=_count, metavar="N", help="show the first N only")
    parser.add_argument("--json", action="store_true", help="print a JSON array, with times in seconds since 1970")


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    tier = open_place(args.where)
    kept = tier.entries()
    shown = _chosen(tier, kept, args.sort, args.limit)
    if args.json:
        print(json.dumps(shown, indent=1))
        return 0
    if shown:
        print(texts.table([["KEY", "SIZE", "AGE", "USED", "PLATFORM", "PROGRAM"], *map(_row, shown)], right=(1, 2, 3)))
    total = sum(entry.size for entry in kept)
    print(f"{texts.plural(len(kept), 'program')}, {texts.size(total)} in {tier.where}")
    return 0


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no count")
    return int(text)


def _chosen(tier: Tier, kept: list[Kept], sort: str, limit: int | None) -> list[dict[str, Any]]:
    """What is shown, in order. Headers cost a read each, so only those are read that the order or the list needs."""
    field, reverse = _SORTS[sort]
    if field in Kept._fields:
        kept = sorted(kept, key=lambda entry: (getattr(entry, field), entry.key), reverse=reverse)[:limit]
    described = [_describe(tier, entry) for entry in kept]
    if field not in Kept._fields:
        described.sort(key=lambda entry: (entry[field] is None, entry[field], entry["key"]), reverse=reverse)
    return described[:limit]


def _describe(tier: Tier, kept: Kept) -> dict[str, Any]:
    entry: dict[str, Any] = {**kept._asdict(), "created": None, "platform": None, "summary": "?", "kernels": None}
    try:
        header = tier.header(kept.key)
    except BadEntry as error:
        return entry | {"summary": f"(bad: {error})"}
    if header is None:
        return entry
    components = header.get("components", {})
    about = {name: header.get(name, entry[name]) for name in ("created", "summary", "kernels")}
    more = {"platform": components.get("platform"), "device_kind": components.get("device_kind")}
    return entry | about | more | {"compile_seconds": header.get("compile_seconds")}


def _row(entry: dict[str, Any]) -> list[str]:
    now = time.time()
    created = None if entry["created"] is None else now - entry["created"]
    name = entry["summary"] + (" [kernels]" if entry["kernels"] else "")
    ages = [texts.age(created), texts.age(now - entry["used"])]
    return [entry["key"][:12], texts.size(entry["size"]), *ages, entry["platform"] or "?", name]
