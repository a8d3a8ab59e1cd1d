"""Whether the program of every rule compiles for a TPU: ``python -m torus.twin.rules``.

PyTorch's operator database calls its ops on the device of this machine, and whatever programs the device builds for
them are lowered for a TPU as well and given to its compiler: a few for each rule, of the database's own small inputs,
in float32 where the op takes it. Gradients are taken, so that the rules of backward ops are met. That a program
compiles is all that this says: what it computes on a chip is for a chip to show. Rules are all that there is to
compile: this package has no hand-written kernels (Pallas).
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torus import _C
from torus.backend import device
from torus.backend.eager import seam
from torus.backend.eager.build import Builder
from torus.backend.eager.request import Request
from torus.backend.lowering.registry import RULES
from torus.twin.compiler import QUICK, CompileError, Compiler
from torus.twin.rule_exceptions import EXCEPTIONS
from torus.twin.topology import Topology

DEVICE = "tpu"
MOST = 2
"""Programs of each rule."""
_SAMPLES = 3


@dataclass
class Found:
    """What came of one rule."""

    rule: str
    compiled: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    """The call that a program was for -> the compiler's words."""

    @property
    def passes(self) -> bool:
        return self.compiled > 0 and not self.failed


class Sweep:
    """Compiles what the device builds while calls are made on it."""

    def __init__(self, compiler: Compiler, most: int = MOST) -> None:
        self.compiler, self.most = compiler, most
        self.found: dict[str, Found] = {}
        self._done: set[tuple[str, str]] = set()

    def __enter__(self) -> Sweep:
        seam.building.append(self._building)
        _C.clear_programs()  # the core asks for no signature twice
        return self

    def __exit__(self, *error: object) -> None:
        seam.building.remove(self._building)

    def _building(self, request: Request, promises: list[Any] | None) -> None:
        if request.rule not in RULES or self._enough(request.rule):
            return
        found = self.found.setdefault(request.rule, Found(request.rule))
        try:
            text = _lower("tpu", request, promises)
            if (name := (request.rule, text)) not in self._done:
                self._done.add(name)
                self.compiler.compile(text, options=QUICK, executable=False, timeout=300)
                found.compiled += 1
        except CompileError as error:
            found.failed[request.describe()] = str(error)
        except Exception as error:
            if self._is_done_elsewhere(request, promises):
                found.failed[request.describe()] = f"{type(error).__name__}: {error}"

    def _is_done_elsewhere(self, request: Request, promises: list[Any] | None) -> bool:
        """Whether the host's platform does what a TPU cannot; else the arguments are refused, or the CPU's, on both."""
        try:
            return bool(_lower("cpu", request, promises))
        except Exception:
            return False

    def _enough(self, rule: str) -> bool:
        found = self.found.get(rule)
        return found is not None and found.compiled + len(found.failed) >= self.most


def _lower(platform: str, request: Request, promises: list[Any] | None) -> str:
    from torus.runtime import lowering

    builder = Builder(request, RULES[request.rule], promises, platform, check_bounds=False)
    return lowering.lower_ahead(platform, builder.function, builder.avals)[0]


def calls(only: Callable[[str], bool] = lambda name: True) -> Iterator[tuple[str, Callable[[], Any]]]:
    """A name and a call on the device for each sample of PyTorch's database."""
    from torch.testing._internal import common_methods_invocations as database

    entries = list(database.op_db)
    for kind in ("unary", "binary", "pointwise", "reduce", "other"):
        entries += getattr(database, f"foreach_{kind}_op_db")
    for entry in entries:
        if only(entry.full_name):
            yield entry.full_name, functools.partial(_call, entry)


def _call(entry: Any) -> None:
    """Some samples of an entry in one dtype, in every form that the op has, with gradients."""
    dtype = _dtype(entry.dtypes)
    grad = entry.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    torch.manual_seed(0)
    found = list(entry.sample_inputs("cpu", dtype, requires_grad=grad))
    step = max(1, len(found) // _SAMPLES)
    for sample in found[::step][:_SAMPLES]:
        first, rest, named = _on_device((sample.input, tuple(sample.args), dict(sample.kwargs)))
        results = [r for r in pytree.tree_leaves(entry(first, *rest, **named)) if isinstance(r, torch.Tensor)]
        if grad and (sums := [r.abs().sum() for r in results if r.requires_grad]):
            torch.stack(sums).sum().backward()


def _dtype(dtypes: Any) -> torch.dtype:
    preferred = (torch.float32, torch.int32, torch.int64, torch.bool, torch.complex64)
    return next((dtype for dtype in preferred if dtype in dtypes), next(iter(dtypes)))


def _on_device(tree: Any) -> Any:
    def move(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return DEVICE
        moved = value.detach().to(DEVICE)
        return moved.requires_grad_(value.requires_grad)

    def is_moved(value: Any) -> bool:
        return isinstance(value, torch.Tensor) or value == "cpu" or value == torch.device("cpu")

    return pytree.tree_map(lambda value: move(value) if is_moved(value) else value, tree)


def sweep(
    compiler: Compiler,
    only: str = "",
    shard: str = "1/1",
    most: int = MOST,
    progress: Callable[[str, dict[str, Found]], None] = lambda text, found: None,
) -> Sweep:
    """All calls whose name `only`, a regular expression, finds; of `shard` ``"1/4"`` each fourth."""
    part, _, parts = shard.partition("/")
    pattern = re.compile(only)
    with Sweep(compiler, most) as found, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, call in calls(lambda name: bool(pattern.search(name)) and _share(name, int(parts)) == int(part) - 1):
            try:
                call()
                device.synchronize()
            except Exception as error:
                progress(f"{name}: {type(error).__name__}: {error}".splitlines()[0], found.found)
            failed = sum(not each.passes for each in found.found.values())
            progress(f"{name}: {len(found.found)} rules, {failed} fail", found.found)
    return found


def _share(name: str, parts: int) -> int:
    return zlib.crc32(name.encode()) % parts


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 if a rule's program does not compile that `EXCEPTIONS` does not list."""
    parser = argparse.ArgumentParser(prog="python -m torus.twin.rules", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--topology", default="v6e:1x1", help="what to compile for (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="REGEX", help="entries of PyTorch's database that it finds")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="one of N parts of the database")
    parser.add_argument("--programs", type=int, default=MOST, metavar="N", help="of each rule (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found")
    args = parser.parse_args(arguments)
    started = time.monotonic()
    compiler = Compiler(Topology.parse(args.topology))

    def tell(text: str, found: dict[str, Found]) -> None:
        print(text, file=sys.stderr, flush=True)
        if args.json:  # what is known so far: all of it takes long
            args.json.write_text(json.dumps([asdict(each) for each in found.values()], indent=1))

    found = sweep(compiler, args.only, args.shard, args.programs, tell).found
    failed = {name: each for name, each in found.items() if not each.passes}
    for name, each in sorted(failed.items()):
        for call, words in (each.failed or {"": "no program"}).items():
            print(f"{name} ({'listed' if name in EXCEPTIONS else 'NEW'}): {call}: {words.splitlines()[0][:300]}")
    programs = sum(each.compiled for each in found.values())
    print(
        f"{len(found) - len(failed)} of {len(found)} rules compile for {args.topology} ({programs} programs, "
        f"{time.monotonic() - started:.0f} s); {len(set(RULES) - set(found))} rules were not met"
    )
    return 1 if set(failed) - set(EXCEPTIONS) else 0


if __name__ == "__main__":
    sys.exit(main())
