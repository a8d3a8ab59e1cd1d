"""Measure the device beside CPU eager, torchax and torch_xla, in one run and in turns.

    python -m benchmarks
    python -m benchmarks --only ops,views --rounds 31 --json reports/benchmarks.json
    python -m benchmarks --only ops --peer torchax=/path/to/python
    python -m benchmarks --only compile                 # what torch.compile gives
    python -m benchmarks --only explain                 # what explanations need
    python -m benchmarks --only twin                    # what the twin says, against the TPU compiler
    python -m benchmarks --only fuse                    # what defer-and-fuse mode gives; or a piece: --only fuse-chain

Every number is the median over rounds in which all processes take turns, with the least beside it where samples are
short. "x" marks ratios, and their names say of what;
trust those, since times depend on the machine and its load, which is printed. torchax and torch_xla are used where the
interpreter has them; each needs its own version of torch, so `--peer` points at another virtual environment's
interpreter. What is not installed is listed so. Exits with 0 whether or not targets are met, with 1 when a
measurement broke.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import accuracy, ops, places, plot, scalars, startup, steps
from benchmarks.compiling import sizes
from benchmarks.compiling import startup as compiled_startup
from benchmarks.compiling import training as compiled_training
from benchmarks.explaining import gradients as integrated
from benchmarks.fusing import chain, first_call, gradients, layers, lengths, record, training, turns
from benchmarks.report import Result, summary, text
from benchmarks.twin import agreement, chips
from benchmarks.worker import Failed, NotInstalled, Worker

TITLES = {
    "ops": "ops: CPU time of the calling thread for one eager op (4x4 unless said; tpu in strict mode)",
    "views": "views: CPU time of the calling thread for one view of a 4x4 tensor",
    "step": "step: one training step, forward, backward and optimizer",
    "startup": "startup: the same script in fresh processes, sharing a cache that starts empty",
    "scalars": "scalars: many ops whose scalars or offsets change",
    "accuracy": "accuracy: MiniLM sentence embeddings",
    "fuse-record": "fuse-record: CPU time of the calling thread for recording one op (4x4 unless said)",
    "fuse-chain": "fuse-chain: 100 ops in a row to completion, warm",
    "fuse-step": "fuse-step: one training step, warm",
    "fuse-captum": "fuse-captum: integrated gradients of a small perceptron, warm",
    "fuse-layers": "fuse-layers: integrated gradients over the embeddings of language models, warm",
    "fuse-startup": "fuse-startup: the same script in fresh processes, fused in the background",
    "compile-step": "compile-step: one training step under torch.compile, and the time to compile it",
    "compile-startup": "compile-startup: the first compiled call in a fresh process",
    "compile-sizes": "compile-sizes: programs for sizes that change",
    "explain-gradients": "explain-gradients: gradients that integrated gradients need, on the CPU",
    "twin-agreement": "twin-agreement: memory, FLOPs and bytes that the twin says, against the whole program compiled",
    "twin-chips": "twin-chips: the TPU compiler's time for one block over more chips",
    "fuse-loop": "fuse-loop: a loop that changes its length, its scalars and its random numbers, in the background",
}
PARTS = {
    part: [group for group in TITLES if group.startswith(f"{part}-")] for part in ("fuse", "compile", "explain", "twin")
}
"""Names of several benchmarks together."""


class Session:
    """The workers of a run, started when first needed and kept until its end."""

    def __init__(self, peers: dict[str, str]) -> None:
        self.missing: dict[str, str] = {}
        self._peers = peers
        self._workers: dict[str, Worker] = {}
        self._stack = contextlib.ExitStack()

    def workers(self, *names: str) -> list[Worker]:
        """Those of `names` that can be had; `missing` says why a peer cannot. Raises for the others."""
        for name in names:
            if name not in self._workers and name not in self.missing:
                try:
                    worker = Worker(name, self._peers.get(name, sys.executable))
                    self._workers[name] = self._stack.enter_context(worker)
                except NotInstalled:
                    if name not in places.PEERS:
                        raise
                    self.missing[name] = "not installed"
                except Failed as error:
                    if name not in places.PEERS:
                        raise
                    self.missing[name] = error.brief
        return [self._workers[name] for name in names if name in self._workers and name not in self.missing]

    def describe(self) -> dict[str, Any]:
        """What each place said of itself."""
        return {name: worker.description for name, worker in self._workers.items()}

    def close(self) -> None:
        """End all workers."""
        self._stack.close()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line; see --help."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--only",
        type=_groups,
        default=list(TITLES),
        metavar="A,B",
        help=f"of {','.join([*TITLES, *PARTS])} (default: all)",
    )
    add("--rounds", type=_positive, default=15, metavar="N", help="turns that each median is taken over (default: 15)")
    add("--json", type=Path, metavar="FILE", help="write everything measured to FILE")
    add("--plot", type=Path, metavar="FILE", help="draw the figures that have targets, as a web page")
    add(
        "--peer", type=_peer, action="append", default=[], metavar="NAME=PYTHON", help="the interpreter that has a peer"
    )
    add("--quick", action="store_true", help="the smallest form of everything: shows that it runs, measures nothing")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure, printing each result as it comes; returns all of it."""
    session = Session(dict(options.peer))
    found: dict[str, Any] = {"rounds": options.rounds, "quick": options.quick, "machine": machine(), "errors": {}}
    found["versions"] = places.describe(None)["versions"]
    print(header(found), flush=True)
    results: dict[str, Result] = {}
    try:
        for group in options.only:
            print(f"\n... {group}", file=sys.stderr, flush=True)
            try:
                results[group] = _benchmarks(session, options)[group]()
                print("\n" + text(TITLES[group], results[group]), flush=True)
            except Exception as error:
                found["errors"][group] = str(error)
                print(f"\n{TITLES[group]}\n\n  BROKE: {(str(error).splitlines() or [repr(error)])[-1]}", flush=True)
        found["places"] = session.describe()
        found["peers"] = {name: session.missing.get(name, "measured") for name in places.PEERS}
    finally:
        session.close()
    found["machine"]["load_after"] = os.getloadavg()
    found["results"] = {group: result.as_dict() for group, result in results.items()}
    print("\n" + summary([figure for result in results.values() for figure in result.figures]))
    print(f"load average {_load(found['machine']['load_before'])} before, {_load(os.getloadavg())} after")
    return found


def _benchmarks(session: Session, options: argparse.Namespace) -> dict[str, Callable[[], Result]]:
    rounds, quick = options.rounds, options.quick

    def enqueue(group: str) -> Result:
        workers = session.workers("tpu", "cpu", *places.PEERS)
        return ops.run(group, workers, session.missing, rounds, quick)

    return {
        "ops": lambda: enqueue("ops"),
        "views": lambda: enqueue("views"),
        "step": lambda: steps.run(session.workers("tpu", *steps.BASELINES), rounds, quick),
        "startup": lambda: startup.run(1 if quick else min(rounds, 3), quick),
        "scalars": lambda: scalars.run(quick),
        "accuracy": accuracy.run,
        "fuse-record": lambda: record.run(session.workers(*record.PLACES), rounds, quick),
        "fuse-chain": lambda: chain.run(session.workers(*turns.PLACES), rounds, quick),
        "fuse-step": lambda: training.run(session.workers(*turns.PLACES), rounds, quick),
        "fuse-captum": lambda: gradients.run(session.workers(*turns.PLACES), rounds, quick),
        "fuse-layers": lambda: layers.run(session.workers(*turns.PLACES), rounds, quick),
        "fuse-startup": lambda: first_call.run(rounds, quick),
        "fuse-loop": lambda: lengths.run(quick),
        "compile-step": lambda: compiled_training.run(session.workers(*compiled_training.PLACES), rounds, quick),
        "compile-startup": lambda: compiled_startup.run(rounds, quick),
        "compile-sizes": lambda: sizes.run(quick),
        "explain-gradients": lambda: integrated.run(quick),
        "twin-agreement": lambda: agreement.run(quick),
        "twin-chips": lambda: chips.run(min(rounds, 3), quick),
    }


def machine() -> dict[str, Any]:
    """Cores, those this process may use, and the load average now."""
    return {"cores": os.cpu_count(), "usable_cores": len(os.sched_getaffinity(0)), "load_before": os.getloadavg()}


def header(found: dict[str, Any]) -> str:
    """The machine and the versions in one paragraph."""
    state = found["machine"]
    versions = ", ".join(f"{name} {version or 'not installed'}" for name, version in found["versions"].items())
    return (
        f"{state['cores']} cores ({state['usable_cores']} usable), load average {_load(state['load_before'])}, "
        f"medians of {found['rounds']} rounds in turns\n{versions}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks. Returns 0, or 1 when a measurement broke."""
    options = parse(arguments)
    found = run(options)
    if options.json:
        _write(options.json, json.dumps(found, indent=2))
    if options.plot:
        _write(options.plot, plot.page(found))
    return 1 if found["errors"] else 0


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    print(f"written: {path.resolve()}")


def _load(values: Sequence[float]) -> str:
    return " ".join(f"{value:.1f}" for value in values)


def _groups(value: str) -> list[str]:
    named = [name.strip() for name in value.split(",")]
    chosen = [group for name in named for group in PARTS.get(name, [name])]
    unknown = [group for group in chosen if group not in TITLES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no benchmark {unknown[0]!r}; there are {', '.join([*TITLES, *PARTS])}")
    return chosen


def _peer(value: str) -> tuple[str, str]:
    name, equals, python = value.partition("=")
    if name not in places.PEERS or not equals or not python:
        raise argparse.ArgumentTypeError(f"expected {' or '.join(f'{peer}=PYTHON' for peer in places.PEERS)}")
    if shutil.which(python) is None:
        raise argparse.ArgumentTypeError(f"{python} is not an interpreter")
    return name, python


def _positive(value: str) -> int:
    number = int(value)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{value} is not a positive number")
    return number


if __name__ == "__main__":
    sys.exit(main())
