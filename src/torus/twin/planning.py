"""Whether a step fits a TPU that is not here, and how fast it could be, in three answers of growing certainty."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torus.twin.estimate import Certainty, Estimate
from torus.twin.topology import Mesh, Topology

if TYPE_CHECKING:
    from torus.twin.advice import Change
    from torus.twin.case import Case
    from torus.twin.scaling import Curve
    from torus.twin.step import Step

Progress = Callable[[str], None]
"""Told what is being done, in words."""

SECONDS_PER_LINE = 0.25
"""That the compiler takes for a line of StableHLO at full effort: 766 s of one core for 2,763 lines of a small GPT's
training step. Decides whether the whole step is tried within a budget.
"""


@dataclass(frozen=True)
class Verdict:
    """Whether a step fits into the memory of a device."""

    needed: int
    capacity: int
    certainty: Certainty

    @property
    def fits(self) -> bool:
        return self.needed <= self.capacity

    @property
    def margin(self) -> int:
        """Bytes that are left, or with a minus those that are missing."""
        return self.capacity - self.needed

    def __str__(self) -> str:
        from torus.twin.report.words import binary

        if self.fits:
            return f"fits: {binary(self.needed)} of {binary(self.capacity)} of HBM, {binary(self.margin)} left"
        return f"does not fit: {binary(self.needed)} of {binary(self.capacity)} of HBM, {binary(-self.margin)} too much"


@dataclass(frozen=True)
class Answer:
    """An estimate, or why there is none of this certainty."""

    certainty: Certainty
    seconds: float
    """That it took on this machine."""
    estimate: Estimate | None = None
    verdict: Verdict | None = None
    """The compiler can refuse a program for its memory, and so have a verdict without an estimate."""
    reason: str = ""


@dataclass(frozen=True)
class Plan:
    """What is known of a step on each device of a topology. Printing it shows everything."""

    name: str
    step: Literal["forward", "train"]
    topology: Topology
    mesh: dict[str, int]
    sharding: str
    batch: int | None
    answers: tuple[Answer, ...] = ()
    advice: tuple[Change, ...] = ()
    scaling: tuple[Curve, ...] = ()
    numerics: Any = None
    """What `torus.twin.numerics` found, where it was asked for."""

    @property
    def estimates(self) -> dict[Certainty, Estimate]:
        """By certainty, the surest last."""
        return {answer.certainty: answer.estimate for answer in self.answers if answer.estimate is not None}

    @property
    def best(self) -> Estimate:
        """The surest estimate that there is."""
        return list(self.estimates.values())[-1]

    @property
    def verdict(self) -> Verdict:
        """The surest."""
        return [answer.verdict for answer in self.answers if answer.verdict is not None][-1]

    @property
    def notes(self) -> tuple[str, ...]:
        """What the estimates assume and leave out."""
        return tuple(dict.fromkeys(note for estimate in self.estimates.values() for note in estimate.notes))

    @property
    def fits(self) -> bool:
        return self.verdict.fits

    @property
    def title(self) -> str:
        """One line: what is planned."""
        batch = "" if self.batch is None else f" of batch {self.batch:,}"
        mesh = ", ".join(f"{axis}={size}" for axis, size in self.mesh.items())
        return f"{self.name}, {self.step} step{batch} on {self.topology.name}{f' ({mesh})' if mesh else ''}"

    def __str__(self) -> str:
        from torus.twin.report.text import text

        return text(self)

    def show(self) -> None:
        """Print everything."""
        print(self)

    def json(self) -> str:
        """Everything, for programs."""
        from torus.twin.report.data import to_json

        return to_json(self)

    def html(self, path: str | PathLike[str]) -> None:
        """Write one HTML file that needs nothing else."""
        from torus.twin.report.page import page

        Path(path).write_text(page(self), encoding="utf-8")

    def _repr_html_(self) -> str:
        from torus.twin.report.page import fragment

        return fragment(self)


def plan(
    fn: Any,
    inputs: Any,
    *,
    topology: str | Topology,
    mesh: str | Mapping[str, int] | None = None,
    step: Literal["forward", "train"] = "forward",
    sharding: Any = "data",
    loss: Callable[..., Any] | None = None,
    optimizer: Any = None,
    precision: str | None = None,
    budget: float = 5.0,
    exact: bool = False,
    advice: bool = False,
    scaling: bool = False,
    progress: Progress | None = None,
) -> Plan:
    """What one step of a model needs on each device of a TPU topology; no TPU is needed, nor memory for its weights.

    fn: a module, or a function of tensors. inputs: example inputs in order or by name, with the batch of all devices
        together; only their sizes and dtypes count, so that both may be on "meta".
    topology: such as ``"v6e:2x2"``. mesh: its devices by axes, ``"data=2,model=2"``; by default all are ``data``.
    step, sharding, loss, optimizer, precision: as `torus.twin.capture.capture` has them.
    budget: minutes that the TPU compiler may take. It is asked for each distinct block, then, if that leaves enough of
        the budget, for the whole step. 0 asks for the analytic answer alone. exact: compile the whole step in any case.
    advice: find what would help, with figures. scaling: the step on 1 to 512 chips. progress: is told what goes on.

    Raises ValueError for a topology or mesh that does not exist, and what `torus.twin.capture.capture` raises.
    """
    from torus.twin.case import Case

    case = Case(fn, inputs, step, loss, optimizer, sharding=sharding, precision=precision)
    return plan_case(
        case, topology, mesh, budget=budget, exact=exact, advice=advice, scaling=scaling, progress=progress
    )


def plan_case(
    case: Case,
    topology: str | Topology,
    mesh: str | Mapping[str, int] | None = None,
    *,
    budget: float = 5.0,
    exact: bool = False,
    advice: bool = False,
    scaling: bool = False,
    progress: Progress | None = None,
) -> Plan:
    """`plan` of a case."""
    planner = Planner(case, topology, mesh, progress)
    for _ in planner.answers(budget, exact):
        pass
    if advice:
        planner.advise()
    if scaling:
        planner.scale()
    return planner.plan


class Planner:
    """A plan that grows; `plan` is what is known so far."""

    def __init__(
        self,
        case: Case,
        topology: str | Topology,
        mesh: str | Mapping[str, int] | None = None,
        progress: Progress | None = None,
    ) -> None:
        from torus.twin.sharding import roles

        place = topology if isinstance(topology, Topology) else Topology.parse(topology)
        self.case = replace(case, mesh=_axes(mesh, place))
        self.progress = progress or (lambda words: None)
        sharding = ", ".join(dict.fromkeys(roles(self.case.mesh, case.sharding).values()))
        self.plan = Plan(
            case.name or getattr(case.fn, "__name__", type(case.fn).__name__),
            case.step,
            place,
            self.case.mesh,
            sharding,
            case.batch,
        )

    def answers(self, budget: float, exact: bool = False) -> Iterator[Answer]:
        """Each answer as soon as it is there. budget: minutes for the compiler; exact: whole, whatever the budget."""
        self.progress("trace and lower the step")
        start = time.perf_counter()
        step = self.case.capture()
        yield self._answer("analytic", _analytic, start, step, self.plan.topology)
        if budget <= 0 and not exact:
            return
        asked = _Asked(step, self.plan.topology, budget * 60, self.progress)
        if budget > 0:
            yield self._answer("composed", asked.composed, time.perf_counter())
        yield self._answer("exact", asked.exact if exact else asked.exact_if_quick, time.perf_counter())

    def _answer(self, certainty: Certainty, ask: Callable[..., Estimate], start: float, *arguments: Any) -> Answer:
        """Where the compiler does not answer, the reason; the analytic answer needs no compiler."""
        from torus.twin.compiler import CompileError, CompilerMissing, DoesNotFit

        found: dict[str, Any] = {}
        try:
            found["estimate"] = ask(*arguments)
            found["verdict"] = verdict(found["estimate"], self.plan.topology)
        except DoesNotFit as error:
            found["verdict"] = Verdict(error.needed, error.available, certainty)
            found["reason"] = "the compiler refuses a program that does not fit"
        except (CompileError, CompilerMissing) as error:
            found["reason"] = str(error)
        answer = Answer(certainty, time.perf_counter() - start, **found)
        self.plan = replace(self.plan, answers=(*self.plan.answers, answer))
        return answer

    def check_numerics(self, case: Case | None = None) -> None:
        """Run the model with the products of each precision, on the inputs of a smaller `case` where there is one.

        Raises ValueError for a model without weights, or inputs without values.
        """
        import torch

        from torus.twin.numerics import numerics

        case = case or self.case
        if not isinstance(case.fn, torch.nn.Module) or not case.has_values:
            why = f"{self.plan.name} is none, or has sizes but no weights"
            raise ValueError(f"numerics are found by running a module, and {why}")
        self.progress("run the model in each precision")
        self.plan = replace(self.plan, numerics=numerics(case.fn, case.inputs, step=case.step))

    def advise(self) -> None:
        """Find what would help."""
        from torus.twin.advice import advise

        self.plan = replace(self.plan, advice=tuple(advise(self.case, self.plan, self.progress)))

    def scale(self) -> None:
        """Estimate the step over 1 to 512 chips."""
        from torus.twin.scaling import scale

        self.plan = replace(self.plan, scaling=scale(self.case, self.plan.topology, self.progress))


class _Asked:
    """A step that the TPU compiler is asked about, within a budget in seconds."""

    def __init__(self, step: Step, topology: Topology, budget: float, progress: Progress) -> None:
        from torus.twin.compiler import Compiler

        self.step, self.topology, self.progress = step, topology, progress
        self.compiler = Compiler(topology)
        self.end = time.perf_counter() + budget

    def composed(self) -> Estimate:
        """From each distinct block."""
        from torus.twin.composed import compose

        return compose(self.step, self.topology, self.compiler, self._left(), self.progress)

    def exact(self, timeout: float | None = None) -> Estimate:
        """From the whole program, however long it takes by default."""
        from torus.twin.compiler import exact

        self.progress("the TPU compiler compiles the whole step")
        return exact(self.step, self.topology, self.compiler, timeout=timeout)

    def exact_if_quick(self) -> Estimate:
        """The same where it is known already, or is likely to be done in time."""
        from torus.twin.compiler import CompileTimeout
        from torus.twin.report.words import seconds

        expected = SECONDS_PER_LINE * self.step.text.count("\n")
        if expected > self._left() and not self.compiler.is_known(self.step.text):
            raise CompileTimeout(f"the whole step may take {seconds(expected)} to compile: give --exact, or a budget")
        return self.exact(self._left())

    def _left(self) -> float:
        return max(0.0, self.end - time.perf_counter())


def verdict(estimate: Estimate, topology: Topology) -> Verdict:
    """Of an estimate."""
    return Verdict(estimate.memory.needed, topology.chip.hbm_bytes, estimate.certainty)


def _analytic(step: Step, topology: Topology) -> Estimate:
    from torus.twin.analytic import estimate

    return estimate(step, topology)


def _axes(mesh: str | Mapping[str, int] | None, topology: Topology) -> dict[str, int]:
    """A mesh over all devices; of one device, none."""
    if mesh is None:
        mesh = "data=-1" if topology.devices > 1 else ""
    text = mesh if isinstance(mesh, str) else ",".join(f"{axis}={size}" for axis, size in mesh.items())
    axes = Mesh.parse(text, topology).axes
    return axes if topology.devices > 1 else {}
