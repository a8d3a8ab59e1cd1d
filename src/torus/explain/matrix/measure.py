"""One cell of the matrix: a case in a mode on the device, against the CPU."""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

from torus.backend import device as tpu
from torus.backend.device import modes as device_modes
from torus.explain.matrix.cases import Case
from torus.explain.matrix.compare import flat, judge
from torus.explain.matrix.draws import one_stream
from torus.explain.matrix.models import Setup, setup
from torus.explain.measure import measured
from torus.explain.modes import running

MODES = ("strict", "fused", "compiled")
SEED = 20261129


@dataclass
class Cell:
    """`error` is the largest difference from the CPU, of two runs, in units of the largest element of a result.

    Where that is above the limit, `exact_error` and `cpu_error` are those of the device and the CPU against float64;
    the second may be that of weights off by a rounding (`torus.explain.matrix.compare`).
    `first` and `seconds` are the times of the first and the second run, programs and memory those of the second.
    `graphs` were compiled in both.
    """

    case: str
    model: str
    mode: str
    status: str
    limit: float
    error: float | None = None
    exact_error: float | None = None
    cpu_error: float | None = None
    cpu_seconds: float | None = None
    first: float | None = None
    seconds: float | None = None
    programs: int | None = None
    fallbacks: int | None = None
    graphs: int | None = None
    peak_memory: int | None = None
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Reference:
    """What the CPU gives for a case, in float32 and, if it comes to that, in float64."""

    def __init__(self, case: Case) -> None:
        self.case = case
        world = setup(case.model, "cpu", torch.float32)
        started = time.perf_counter()
        self.results = _run(case, world)
        self.seconds = time.perf_counter() - started
        self._exact: list[torch.Tensor] | None = None

    def exact(self) -> list[torch.Tensor]:
        if self._exact is None:
            self._exact = _run(self.case, setup(self.case.model, "cpu", torch.float64))
        return self._exact

    def nudged(self, draws: int = 4) -> Iterator[list[torch.Tensor]]:
        """In float64, of weights that are each less than a rounding of float32 away from what they are."""
        for seed in range(draws):
            world, draw = setup(self.case.model, "cpu", torch.float64), torch.Generator().manual_seed(seed)
            with torch.no_grad():
                for weight in world.net.parameters():
                    part = torch.rand(weight.shape, generator=draw, dtype=weight.dtype) - 0.5
                    weight.mul_(1 + torch.finfo(torch.float32).eps * part)
            yield _run(self.case, world)


def cells(case: Case, modes: tuple[str, ...]) -> Iterator[Cell]:
    """A cell for each mode. The CPU runs once; where it cannot run the case, nothing is asked of the device."""
    why = f"needs {case.missing}" if case.missing else ""
    reference = None
    if not why:
        try:
            reference = Reference(case)
        except Exception as error:
            why = f"does not run on the CPU: {_first_line(error)}"
    for mode in modes:
        cell = Cell(case.name, case.model, mode, "skip", case.limit, note=why)
        if reference is not None:
            _fill(cell, case, reference)
        yield cell


def _fill(cell: Cell, case: Case, reference: Reference) -> None:
    cell.cpu_seconds = reference.seconds
    try:
        found = list(_twice(cell, case))
        judged = judge(found, reference.results, reference.exact, case.limit, reference.nudged)
    except Exception as error:
        cell.status, cell.note = "miss", _first_line(error)
        return
    cell.status = "ok" if judged.right else "miss"
    cell.error, cell.exact_error, cell.cpu_error = judged.error, judged.exact_error, judged.cpu_error
    if cell.mode == "compiled" and case.uses_model and not cell.graphs:
        cell.status, cell.note = "miss", "nothing was compiled"


def _twice(cell: Cell, case: Case) -> Iterator[list[torch.Tensor]]:
    """The results of two runs: what was recorded or compiled in the first may be what runs in the second."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with in_mode(cell.mode):
        world = setup(case.model, "tpu", torch.float32, cell.mode == "compiled")
        for attempt in range(2):
            with measured(torch.device("tpu")) as cost:
                results = _run(case, world)
            cell.first, cell.seconds = (cost.seconds, None) if attempt == 0 else (cell.first, cost.seconds)
            yield results
        cell.programs, cell.fallbacks = cost.counted["programs"], cost.counted["fallbacks"]
        cell.peak_memory = cost.peak_memory
        cell.graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]


@contextlib.contextmanager
def in_mode(mode: str) -> Iterator[None]:
    """Ops run in the mode; what is recorded is fused at once, and products have the highest precision."""
    fusing = device_modes.get_fusing()
    device_modes.set_fusing("foreground")
    try:
        with running("fused" if mode == "fused" else "strict"), tpu.precision("highest"):
            yield
    finally:
        device_modes.set_fusing(fusing)


def _run(case: Case, world: Setup) -> list[torch.Tensor]:
    """The results on the CPU in float64. What Captum prints and warns of is not shown."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        with one_stream(SEED):
            return flat(case.run(world))


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
