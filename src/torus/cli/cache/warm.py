"""``torus cache warm``: have a cache filled by running a script, or from programs that were written down."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from torus.cli import CommandError, texts
from torus.cli.cache.places import open_place, setting
from torus.runtime.tier import Tier


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A script and its arguments, or a folder."""
    recorded = "compile what TORUS_DUMP_MISSES wrote to this folder, for the platform of this machine"
    parser.add_argument("--from", dest="folder", type=Path, metavar="FOLDER", help=recorded)
    ahead = "compile the script's programs for a TPU that is not here, such as v6e:1x1, and keep them for its host"
    parser.add_argument("--topology", metavar="TOPOLOGY", help=ahead)
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help="a Python script, run in a process of its own")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS", help="given to the script")


def run(args: argparse.Namespace) -> int:
    """Fill the cache and say with what; the exit status of the script, or 1 if a recorded program does not compile."""
    if (args.script is None) == (args.folder is None):
        raise CommandError("give a SCRIPT, or --from FOLDER")
    if args.folder is not None and args.topology is not None:
        raise CommandError("--topology is for a SCRIPT: recorded programs are those of the platform that recorded them")
    if args.folder is not None:
        return _warm_from(args.folder)
    return _warm_script(args.script, args.arguments, args.topology)


def _warm_script(script: str, arguments: list[str], topology: str | None) -> int:
    environment = _environment(topology) if topology is not None else {}
    if not Path(script).is_file():
        raise CommandError(f"there is no script {script}")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        variables = {"TORUS_CACHE_REPORT": str(report), "TORUS_CACHE_ONLY": "0"}
        if topology is not None:
            variables |= {"TORUS_WARM_TOPOLOGY": topology, "TORUS_PLATFORM": "cpu"}
        if setting("program_cache").lower() == "disabled":
            variables["TORCH_TPU_TIER2_COMPILATION_CACHE"] = "default"
        status = subprocess.run(
            [sys.executable, script, *arguments], env=os.environ | variables, check=False
        ).returncode
        if report.exists():
            found = json.loads(report.read_text())
            if topology is None:
                _print_report(found["stats"], found["misses"])
            else:
                status = _print_ahead(found["misses"], topology, environment) or status
        else:
            print("the script did not use the device, or did not end by itself")
    return status if status >= 0 else 128 - status


_TO_CONFIRM = """\
Keys were made by the code that makes them on the chip's host, with what the TPU compiler says of its platform:
{components}
Only a chip can confirm that its runtime says the same, and loads what was compiled ahead. The chip's host needs the
same versions, flags and torus settings; there, `torus cache explain --last-misses` names what differs."""


def _environment(topology: str) -> dict[str, str]:
    """What the keys of programs for a topology have in common."""
    from torus.twin.compiler import CompileError, Compiler, CompilerMissing
    from torus.twin.topology import Topology

    try:
        return Compiler(Topology.parse(topology)).environment()
    except (ValueError, CompileError, CompilerMissing) as error:
        raise CommandError(str(error)) from None


def _print_ahead(misses: list[dict[str, Any]], topology: str, environment: dict[str, str]) -> int:
    """Which of a script's programs are kept for a topology; 1 if one is not."""
    kept = {entry.key for name in ("disk", "shared") if (tier := _place(name)) is not None for entry in tier.entries()}
    lost = [record for record in misses if record["program"] not in kept]
    for record in misses:
        print(f"{'not kept' if record in lost else 'kept'} {record['program'][:12]}: {record['summary']}")
    print(f"{texts.plural(len(misses) - len(lost), 'program')} kept for {topology}, {len(lost)} not")
    shown = texts.table([[f"  {name}", " ".join(value.split()) or "(none)"] for name, value in environment.items()])
    print(_TO_CONFIRM.format(components=shown))
    return 1 if lost else 0


def _place(name: str) -> Tier | None:
    try:
        return open_place(name)
    except CommandError:
        return None


def _warm_from(folder: Path) -> int:
    records = [_record(path) for path in sorted(folder.glob("*.json"))] if folder.is_dir() else []
    if not records:
        raise CommandError(f"{folder} holds no programs that TORUS_DUMP_MISSES wrote")
    from torus import runtime

    try:
        platform = runtime.platform_name()
    except RuntimeError as error:
        raise CommandError(str(error)) from None
    ours = [record for record in records if record["components"]["platform"] == platform]
    failed = sum(not _compile(folder, record) for record in ours)
    if len(ours) < len(records):
        print(f"{texts.plural(len(records) - len(ours), 'program')} for other platforms than {platform} left out")
    _print_report(runtime.cache.stats(), runtime.cache.explain())
    return 1 if failed else 0


def _record(path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(path.read_text())
        record["file"], record["out_avals"], record["options"], record["components"]["platform"]
    except (ValueError, KeyError, TypeError):
        raise CommandError(f"{path} is not what TORUS_DUMP_MISSES writes") from None
    return record


def _compile(folder: Path, record: dict[str, Any]) -> bool:
    """Have one program in the cache; False, with a message, if that fails."""
    from torus import runtime

    data = (folder / Path(record["file"]).name).read_bytes()
    text: str | bytes = data.decode() if record["file"].endswith(".mlir") else data
    out_avals = [(tuple(shape), dtype) for shape, dtype in record["out_avals"]]
    try:
        runtime.programs.get_or_compile(text, out_avals, 0, record["options"])
    except (RuntimeError, ValueError) as error:
        print(f"{record['program'][:12]} ({record['summary']}) does not compile: {error}", file=sys.stderr)
        return False
    return True


def _print_report(stats: dict[str, Any], misses: list[dict[str, Any]]) -> None:
    for record in misses:
        print(f"compiled {record['program'][:12]} in {record.get('compile_seconds', 0):.3f} s: {record['summary']}")
    hits = f"{stats['disk_hits']} from disk, {stats['shared_hits']} from the shared store"
    compiled = f"{stats['compiles']} compiled in {stats['compile_seconds']:.2f} s"
    print(f"{texts.plural(stats['requests'], 'request')}: {stats['memory_hits']} from memory, {hits}, {compiled}")
