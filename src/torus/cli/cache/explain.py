"""``torus cache explain``: what a program was made from, and why programs were compiled."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from torus.cli import CommandError, texts
from torus.cli.cache.places import find_key, open_place
from torus.runtime import misses
from torus.runtime.cache_errors import BadEntry
from torus.runtime.disk_cache import DiskCache
from torus.runtime.tier import Tier

MEANINGS = {
    "program": "SHA-256 of its StableHLO text",
    "options": "compiler options of this program alone",
    "platform": "cpu, cuda or tpu",
    "platform_version": "the runtime that compiled it",
    "device_kind": "the chip that its code is for",
    "jaxlib": "holds the compiler and the format of executables: another version does not load this code",
    "XLA_FLAGS": "compiler flags of the process",
    "LIBTPU_INIT_ARGS": "compiler flags of the process, for TPUs",
    "cpu_features": "instruction set extensions of the host, all of which XLA:CPU uses",
    "format": "version of the cache's files",
}
"""Each component of a key, and why it is one."""

_NOT_PARTS = (
    "Not part of it: the versions of torus, jax, torch and Python. They shape the text, and the text is hashed."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which program, or the last misses."""
    parser.add_argument("key", nargs="?", metavar="KEY", help="a content address, or its beginning")
    parser.add_argument("--in", dest="where", default="disk", metavar="CACHE", help="the cache (default: disk)")
    last = "the programs that the last process which compiled anything did not find on this host"
    parser.add_argument("--last-misses", action="store_true", help=last)
    here = "compare with what this machine would ask for now (starts the device)"
    parser.add_argument("--here", action="store_true", help=here)


def run(args: argparse.Namespace) -> int:
    """Print the explanation."""
    if args.last_misses == (args.key is not None):
        raise CommandError("give a KEY, or --last-misses")
    tier = open_place(args.where)
    if args.last_misses:
        return _print_last(tier)
    key = find_key(tier, args.key)
    if key is None:
        return _print_missed(tier, args.key)
    _print_entry(tier, key, args.here)
    return 0


def _print_entry(tier: Tier, key: str, here: bool) -> None:
    try:
        header = tier.header(key) or {}
    except BadEntry as error:
        raise CommandError(f"entry {key} in {tier.where} is bad: {error}") from None
    print(f"{key}\n{header.get('summary', '?')}\n")
    components: dict[str, str] = header.get("components", {})
    print(texts.table([[name, value or "(none)", MEANINGS.get(name, "")] for name, value in components.items()]))
    print(f"\n{_NOT_PARTS}")
    if "created" in header:
        ago = texts.age(time.time() - header["created"])
        print(f"Compiled {ago} ago in {header['compile_seconds']:.3f} s.")
    if here:
        _print_here(components)


def _print_here(components: dict[str, str]) -> None:
    """Which components another process on this machine would have otherwise."""
    from torus.runtime import client, keys

    try:
        now = keys.environment(client.device(0))
    except RuntimeError as error:
        raise CommandError(str(error)) from None
    changed = [name for name in keys.differences(components, now) if name in components and name in now]
    print("This machine asks for the same." if not changed else "This machine asks for another program:")
    for name in changed:
        print(f"  {name}: {components[name] or '(none)'} -> {now[name] or '(none)'}")


def _last(tier: Tier) -> dict[str, Any]:
    if not isinstance(tier, DiskCache):
        raise CommandError(f"misses are recorded on disk, and {tier.where} is a shared store")
    try:
        report: dict[str, Any] = json.loads((tier.path / misses.LAST).read_text())
    except FileNotFoundError:
        raise CommandError(f"no process has recorded misses in {tier.where}") from None
    except ValueError:
        raise CommandError(f"{tier.path / misses.LAST} is damaged; remove it") from None
    return report


def _print_last(tier: Tier) -> int:
    report = _last(tier)
    ago = texts.age(time.time() - report["time"])
    print(f"{' '.join(report['command'])} (process {report['pid']}, {ago} ago)")
    for record in report["misses"]:
        _print_miss(record)
    reasons = sorted({record["why"].split(":")[0] for record in report["misses"]})
    print(f"{texts.plural(len(report['misses']), 'miss', 'misses')}: {'; '.join(reasons)}")
    return 0


def _print_missed(tier: Tier, prefix: str) -> int:
    """A program that is not there, but was asked for."""
    found = _last(tier)["misses"] if isinstance(tier, DiskCache) and (tier.path / misses.LAST).exists() else []
    asked = [record for record in found if record["program"].startswith(prefix.lower())]
    if not asked:
        raise CommandError(f"{tier.where} has no program {prefix}, and the last misses do not name it")
    print(f"not in {tier.where}; it was asked for:")
    _print_miss(asked[-1])
    return 0


def _print_miss(record: dict[str, Any]) -> None:
    seconds = f", compiled in {record['compile_seconds']:.3f} s" if "compile_seconds" in record else ", not compiled"
    print(f"{record['program'][:12]}  {record['summary']}{seconds}\n    {record['why']}", end="")
    print(f" (nearest: {record['nearest'][:12]})" if record["nearest"] else "")
    for name, (old, new) in record["changed"].items():
        print(f"    {name}: {old or '(none)'} -> {new or '(none)'}")
