"""Differential fuzzing of the device against the CPU: ``python -m tests.fuzz --programs 100000 --seed 0``."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

import torch

import torus  # noqa: F401  makes the device exist where the package is not installed
from tests.fuzz.generate import DTYPES, EXTRA_DTYPES, fuzz
from tests.fuzz.modes import NAMES
from tests.fuzz.program import Mismatch, Program, minimize
from tests.fuzz.tally import Tally, run_seeds

CHUNK = 50
PROCESS = 2000
"""Programs after which a process is replaced: what it has compiled stays in its memory (half a megabyte a program)."""
MANY = 20


def _tallies(chunks: list[list[int]], dtypes: list[torch.dtype], mode: str, jobs: int) -> Iterator[Tally]:
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, spawn, max_tasks_per_child=PROCESS // CHUNK)
    try:
        for done in as_completed([pool.submit(run_seeds, chunk, dtypes, mode) for chunk in chunks]):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _report(program: Program, mismatch: Mismatch, mode: str, shrink: bool) -> None:
    lines = minimize(program.lines, mode, program.seed) if shrink else program.lines[: mismatch.line + 1]
    print(f"\n# seed {program.seed}, mode {mode}: {mismatch.aspect} after: {program.lines[mismatch.line]}")
    print(
        "".join(f"# {line}\n" for line in mismatch.detail.splitlines()) + Program(program.seed, lines).source(),
        flush=True,
    )


def main() -> int:
    """Parse the command line, run, report; the exit status is 1 after a mismatch."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=2000, help="how many programs to run")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first program")
    parser.add_argument("--mode", choices=NAMES, default="strict", help="how the device runs them; mixed: at random")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--dtypes", nargs="+", help="names of dtypes, such as float32 complex64")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one program and print it")
    parser.add_argument("--minimize", action="store_true", help="shorten each program that shows a mismatch")
    parser.add_argument("--keep-going", action="store_true", help=f"do not stop after {MANY} mismatches")
    options = parser.parse_args()
    dtypes = [getattr(torch, n) for n in options.dtypes] if options.dtypes else list(DTYPES)
    if not set(dtypes) <= {*DTYPES, *EXTRA_DTYPES}:
        parser.error(f"the dtypes are {', '.join(str(d)[6:] for d in (*DTYPES, *EXTRA_DTYPES))}")
    if options.replay is not None:
        program, mismatch = fuzz(options.replay, dtypes, options.mode)
        print(program.source())
        if mismatch is not None:
            _report(program, mismatch, options.mode, options.minimize)
        return int(mismatch is not None)
    return _run_all(options, dtypes)


def _run_all(options: argparse.Namespace, dtypes: list[torch.dtype]) -> int:
    seeds = range(options.seed, options.seed + options.programs)
    chunks = [list(seeds[i : i + CHUNK]) for i in range(0, len(seeds), CHUNK)]
    total, start = Tally(), time.monotonic()
    for tally in _tallies(chunks, dtypes, options.mode, options.jobs):
        total.add(tally)
        for program, mismatch in tally.mismatches:
            _report(program, mismatch, options.mode, options.minimize)
        print(f"\r{_summary(total, start)} of {len(seeds)}  ", end="", file=sys.stderr, flush=True)
        if len(total.mismatches) >= MANY and not options.keep_going:
            print("\nstopped after so many mismatches", file=sys.stderr)
            break
    print(f"\n{_summary(total, start)}")
    for name, count in sorted(total.fallbacks.items()):
        print(f"on the cpu: {name} ({count} times)")
    return int(bool(total.mismatches))


def _summary(total: Tally, start: float) -> str:
    seconds = time.monotonic() - start
    return (
        f"{len(total.mismatches)} mismatches, {total.compiles} compiles, {total.statements} statements, "
        f"{total.programs / seconds:.0f} programs/s, {seconds:.0f} s, {total.programs} programs"
    )


if __name__ == "__main__":
    sys.exit(main())
