"""``torus explain bench``: one attribution on the CPU and in each mode of the device, side by side.

Each mode is measured in processes of its own: first calls with an empty cache and with a filled one, then repeated
calls, and one more under a profiler. The module has ``add_arguments(parser)`` and ``run(args)``, as subcommands have.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from torus.explain.measure import Cost, measured

PLACES = ("cpu", "strict", "fused", "compiled")


@dataclass
class Measured:
    """Times in seconds; programs, copies and memory of a warm call. The error is relative to the largest element.

    `processor` is the processor time of a warm call, which other work of the machine disturbs less. `top` has rows of
    `torus.explain.profiled`.
    """

    place: str
    first_empty: float
    first_filled: float
    warm: float
    processor: float
    error: float
    programs: int | None
    host_reads: int | None
    host_writes: int | None
    peak_memory: int | None
    top: list[dict[str, Any]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is explained, by which method, and how often."""
    parser.add_argument(
        "model",
        nargs="?",
        default="mlp",
        help="mlp, cnn or lm, or package.module:factory or file.py:factory that gives (model, inputs, target)",
    )
    parser.add_argument("--method", default="captum:IntegratedGradients", help="a method, or captum:CLASS")
    parser.add_argument("--options", type=json.loads, default={}, metavar="JSON", help="options of the method")
    parser.add_argument("--layer", metavar="NAME", help="explain what this module gives, as Captum's layer methods do")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="warm calls, of which the median counts")
    parser.add_argument("--places", default=",".join(PLACES), help="some of " + ",".join(PLACES))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")


def run(args: argparse.Namespace) -> int:
    """Measure, print a table, and write the figures."""
    places = args.places.split(",")
    unknown = [place for place in places if place not in PLACES]
    if unknown:
        print(f"there is no {unknown[0]!r}; there are {', '.join(PLACES)}", file=sys.stderr)
        return 2
    figures = []
    for place in dict.fromkeys(("cpu", *places)):
        figures.append(_measure(place, args))
        print(f"measured: {place}", file=sys.stderr)
    found = [asdict(row) for row in _with_errors(figures)]
    print(table(found))
    for row in found:
        print(f"\n{row['place']}, where a warm call spends its time\n{top_table(row['top'])}")
    if args.json:
        args.json.write_text(json.dumps({"model": args.model, "method": args.method, "places": found}, indent=1))
    return 0


def table(rows: list[dict[str, Any]]) -> str:
    """The figures as text, a line for each place."""
    from torus.backend.device.amounts import show_bytes, show_seconds

    def shown(name: str, value: Any) -> str:
        if value is None:
            return "-"
        if name in ("first_empty", "first_filled", "warm", "processor"):
            return show_seconds(value)
        if name == "error":
            return f"{value:.1e}"
        return show_bytes(value) if name == "peak_memory" else str(value)

    names = [name for name in rows[0] if name != "top"]
    lines = [[name.replace("_", " ") for name in names], *[[shown(n, row[n]) for n in names] for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    return "\n".join("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in lines)


def top_table(rows: list[dict[str, Any]]) -> str:
    """Rows of a profile as text."""
    from torus.backend.device.amounts import show_seconds
    from torus.cli.texts import table as lay_out

    lines = [[show_seconds(row["seconds"]), str(row["calls"]), row["what"]] for row in rows]
    return lay_out([["own time", "calls", "what"], *lines], right=(0, 1))


def _with_errors(found: list[tuple[dict[str, Any], list[Any]]]) -> list[Measured]:
    from torus.explain.matrix.compare import distance

    reference = found[0][1]
    return [Measured(error=distance(results, reference), **figures) for figures, results in found]


def _measure(place: str, args: argparse.Namespace) -> tuple[dict[str, Any], list[Any]]:
    """The figures of a place and the attributions. The second process finds what the first has compiled; the CPU
    compiles nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        empty = None if place == "cpu" else _process(place, args, Path(folder), 0)[0]
        filled, results = _process(place, args, Path(folder), args.repeat)
    names = ("warm", "processor", "programs", "host_reads", "host_writes", "peak_memory", "top")
    return {
        "place": place,
        "first_empty": (empty or filled)["first"],
        "first_filled": filled["first"],
        **{name: filled[name] for name in names},
    }, results


def _process(place: str, args: argparse.Namespace, folder: Path, repeat: int) -> tuple[dict[str, Any], list[Any]]:
    results = folder / "results.pt"
    asked = {name: getattr(args, name) for name in ("model", "method", "options", "layer")}
    asked |= {"place": place, "repeat": repeat}
    environment = os.environ | {"TORUS_CACHE_DIR": str(folder / "cache"), "TORUS_MEASURED": json.dumps(asked)}
    command = [sys.executable, "-m", "torus.explain.bench", str(results)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"measuring {place} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1]), torch.load(results)


def _work(asked: dict[str, Any], results: Path) -> dict[str, Any]:
    """In the process of its own: the first call, and medians of warm ones."""
    from torus.explain.matrix.compare import flat
    from torus.explain.profiled import top

    place = asked["place"]
    device = torch.device("cpu" if place == "cpu" else "tpu")
    call = _call(asked, device)
    first = _costs(call, device, 1)
    if asked["repeat"] and place == "fused":
        _settle(call)
    warm = _costs(call, device, asked["repeat"]) or first
    torch.save(flat(warm[-1].found), results)
    cost = warm[-1].cost
    return {
        "first": first[0].cost.seconds,
        "warm": statistics.median(timed.cost.seconds for timed in warm),
        "processor": statistics.median(timed.processor for timed in warm),
        **{name: cost.counted.get(name) for name in ("programs", "host_reads", "host_writes")},
        "peak_memory": cost.peak_memory,
        "top": [asdict(row) for row in top(call, recorded=place == "fused")] if asked["repeat"] else [],
    }


@dataclass(frozen=True)
class _Timed:
    """What a call gave, its cost, and the seconds of processors that it took."""

    found: Any
    cost: Cost
    processor: float


def _costs(call: Callable[[], Any], device: torch.device, count: int) -> list[_Timed]:
    timed = []
    for _ in range(count):
        started = time.process_time()
        with measured(device) as cost:
            found = call()
        timed.append(_Timed(found, cost, time.process_time() - started))
    return timed


def _settle(call: Callable[[], Any], most: int = 5) -> None:
    """Run until everything that is fused in the background has been."""
    from torus.backend import device as tpu
    from torus.backend.eager import fuse

    for _ in range(most):
        before = tpu.counters()["compiles"]
        call()
        tpu.synchronize()
        fuse.wait_for_compiles(None)
        if tpu.counters()["compiles"] == before:
            return


def _call(asked: dict[str, Any], device: torch.device) -> Callable[[], Any]:
    """What is measured, as a function without arguments; one of Captum's methods, or one of ours."""
    from torus.explain.modes import running
    from torus.explain.run import explain

    model, inputs, target = load(asked["model"])
    model = model.to(device)
    inputs = torch.utils._pytree.tree_map_only(torch.Tensor, lambda x: x.to(device), inputs)
    place, options = asked["place"], asked["options"]
    mode = "default" if place == "cpu" else place
    kind, _, name = asked["method"].rpartition(":")
    layer = None if asked["layer"] is None else model.get_submodule(asked["layer"])
    if kind != "captum":
        return lambda: explain(model, inputs, target, method=name, mode=mode, layer=layer, **options).attributions
    given = torch.compile(model, backend="tpu") if place == "compiled" else model
    method = getattr(importlib.import_module("captum.attr"), name)(given, *[layer] * (layer is not None))

    def call() -> Any:
        with running("strict" if mode == "compiled" else mode):
            return method.attribute(inputs, target=target, **options)

    return call


def load(name: str) -> tuple[Any, Any, Any]:
    """A model of the matrix, or what a factory gives: ``(model, inputs, target)``."""
    if ":" not in name:
        from torus.explain.matrix.models import MODELS, setup

        if name not in MODELS:
            raise ValueError(f"there is no model {name!r}; there are {', '.join(MODELS)}, or a factory")
        world = setup(name, "cpu", torch.float32)
        return world.net, world.x, world.target.tolist()
    place, _, function = name.rpartition(":")
    return getattr(_module(place), function)()


def _module(place: str) -> Any:
    if not place.endswith(".py"):
        return importlib.import_module(place)
    spec = importlib.util.spec_from_file_location(Path(place).stem, place)
    if spec is None or spec.loader is None:
        raise ValueError(f"{place} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    import torus  # noqa: F401  makes the device exist where the package is not installed

    print(json.dumps(_work(json.loads(os.environ["TORUS_MEASURED"]), Path(sys.argv[1]))))
