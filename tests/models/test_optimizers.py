from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

from tests.models.compare import assert_all_near, assert_near

STEPS = 5
SHAPES = [(16, 8), (16,), (4, 16), (1,)]

FORMS = [{"foreach": True}, {"foreach": False}, {"fused": True}]
OPTIONS: list[tuple[type[torch.optim.Optimizer], dict[str, Any]]] = [
    (torch.optim.SGD, {}),
    (torch.optim.SGD, {"momentum": 0.9}),
    (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.2, "maximize": True}),
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"weight_decay": 0.1, "amsgrad": True}),
    (torch.optim.Adam, {"maximize": True, "betas": (0.5, 0.9), "eps": 1e-3}),
    (torch.optim.AdamW, {}),
    (torch.optim.AdamW, {"weight_decay": 0.1, "amsgrad": True}),
]


def name(value: Any) -> str | None:
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, dict):
        return "-".join(key if v is True else f"{key}={v}".replace(" ", "") for key, v in value.items()) or "plain"
    return None


class Problem:
    """Parameters and a gradient for each step, the same numbers on any device."""

    def __init__(self, device: str, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(0)
        values = [torch.randn(shape, generator=generator) for shape in SHAPES]
        self.gradients = [[torch.randn(s, generator=generator).to(device, dtype) for s in SHAPES] for _ in range(STEPS)]
        self.parameters = [nn.Parameter(v.to(device, dtype)) for v in values]

    def steps(self) -> Iterator[None]:
        for gradients in self.gradients:
            for parameter, gradient in zip(self.parameters, gradients):
                parameter.grad = gradient.clone()
            yield

    def result(self) -> dict[str, Tensor]:
        return {str(i): p.detach().cpu() for i, p in enumerate(self.parameters)}


def state_of(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state tensors by parameter and name, on the CPU."""
    states = optimizer.state_dict()["state"]
    return {f"{i}.{key}": v.cpu() for i, state in states.items() for key, v in state.items() if isinstance(v, Tensor)}


def both(run: Callable[[Problem], dict[str, Tensor]], tolerance: float = 1e-6) -> None:
    """`run` on the device in float32 gives what it gives on the CPU in float64."""
    assert_all_near(run(Problem("tpu", torch.float32)), run(Problem("cpu", torch.float64)), tolerance)


@pytest.mark.parametrize("form", FORMS, ids=name)
@pytest.mark.parametrize(("kind", "options"), OPTIONS, ids=name)
def test_steps(kind: type[torch.optim.Optimizer], options: dict[str, Any], form: dict[str, Any]) -> None:
    def run(problem: Problem) -> dict[str, Tensor]:
        optimizer = kind(problem.parameters, lr=1e-2, **options, **form)
        for _ in problem.steps():
            optimizer.step()
        return {**problem.result(), **state_of(optimizer)}

    both(run)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}),
        (torch.optim.Adagrad, {"lr_decay": 0.1}),
        (torch.optim.Adadelta, {}),
        (torch.optim.Adamax, {}),
        (torch.optim.NAdam, {}),
        (torch.optim.RAdam, {}),
    ],
    ids=name,
)
def test_other_optimizers(kind: type[torch.optim.Optimizer], options: dict[str, Any]) -> None:
    def run(problem: Problem) -> dict[str, Tensor]:
        optimizer = kind(problem.parameters, lr=1e-2, **options)
        for _ in problem.steps():
            optimizer.step()
        return {**problem.result(), **state_of(optimizer)}

    both(run, 1e-5)


@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
@pytest.mark.parametrize("form", FORMS[1:], ids=name)
def test_tensor_learning_rate(form: dict[str, Any], on_device: bool) -> None:
    def run(problem: Problem) -> dict[str, Tensor]:
        parameter = problem.parameters[0]
        rate = torch.tensor(1e-2, dtype=parameter.dtype, device=parameter.device if on_device else "cpu")
        optimizer = torch.optim.Adam(problem.parameters, lr=rate, **form)
        for _ in problem.steps():
            optimizer.step()
        return problem.result()

    both(run)


def test_capturable() -> None:
    def run(problem: Problem) -> dict[str, Tensor]:
        # The CPU takes no capturable step; the device's must give what the ordinary one gives there.
        optimizer = torch.optim.Adam(problem.parameters, lr=1e-2, capturable=problem.parameters[0].is_tpu)
        for _ in problem.steps():
            optimizer.step()
        return problem.result()

    both(run)


def test_parameter_groups() -> None:
    def run(problem: Problem) -> dict[str, Tensor]:
        matrices = [p for p in problem.parameters if p.ndim > 1]
        vectors = [p for p in problem.parameters if p.ndim == 1]
        optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0, "lr": 1e-3}], lr=1e-2
        )
        for _ in problem.steps():
            optimizer.step()
        return problem.result()

    both(run)


def test_state_moves_between_devices() -> None:
    """Half of the steps on one device, the rest on the other, in both directions."""

    def run(problem: Problem, other: Problem) -> dict[str, Tensor]:
        first = torch.optim.Adam(problem.parameters, lr=1e-2)
        second = torch.optim.Adam(other.parameters, lr=1e-2)
        for i, _ in enumerate(zip(problem.steps(), other.steps())):
            if i == 2:
                second.load_state_dict(first.state_dict())
                with torch.no_grad():
                    for source, target in zip(problem.parameters, other.parameters):
                        target.copy_(source)
            (first if i < 2 else second).step()
        return other.result()

    expected = run(Problem("cpu", torch.float64), Problem("cpu", torch.float64))
    for devices in [("cpu", "tpu"), ("tpu", "cpu")]:
        first, second = (Problem(device, torch.float32) for device in devices)
        assert_all_near(run(first, second), expected, 1e-6)


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
@pytest.mark.parametrize("limit", [0.5, 1e6])
def test_clip_grad_norm(limit: float, norm: float, foreach: bool) -> None:
    def run(problem: Problem) -> dict[str, Tensor]:
        next(problem.steps())
        total = nn.utils.clip_grad_norm_(problem.parameters, limit, norm, foreach=foreach)
        return {"norm": total, **{str(i): p.grad for i, p in enumerate(problem.parameters)}}

    both(run)


def test_clip_grad_norm_refuses_nan() -> None:
    problem = Problem("tpu", torch.float32)
    next(problem.steps())
    problem.parameters[1].grad[3] = float("nan")
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_(problem.parameters, 1.0, error_if_nonfinite=True)


@pytest.mark.parametrize("foreach", [True, False])
def test_clip_grad_value(foreach: bool) -> None:
    def run(problem: Problem) -> dict[str, Tensor]:
        next(problem.steps())
        nn.utils.clip_grad_value_(problem.parameters, 0.3, foreach=foreach)
        return {str(i): p.grad for i, p in enumerate(problem.parameters)}

    both(run)


SCHEDULES: dict[str, Callable[[torch.optim.Optimizer], LRScheduler]] = {
    "step": lambda o: StepLR(o, step_size=2, gamma=0.3),
    "exponential": lambda o: ExponentialLR(o, gamma=0.7),
    "cosine": lambda o: CosineAnnealingLR(o, T_max=STEPS),
    "lambda": lambda o: LambdaLR(o, lambda step: 1 / (1 + step)),
    "one-cycle": lambda o: OneCycleLR(o, max_lr=0.1, total_steps=STEPS),
    "warm-up": lambda o: SequentialLR(o, [LinearLR(o, 0.1, total_iters=2), ExponentialLR(o, 0.5)], milestones=[2]),
}


@pytest.mark.parametrize("tensor_rate", [False, True], ids=["float", "tensor"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.filterwarnings("ignore:The epoch parameter")
def test_schedules(schedule: str, tensor_rate: bool) -> None:
    def run(problem: Problem) -> dict[str, Tensor]:
        dtype = problem.parameters[0].dtype
        rate = torch.tensor(0.05, dtype=dtype) if tensor_rate else 0.05
        optimizer = torch.optim.AdamW(problem.parameters, lr=rate)
        scheduler = SCHEDULES[schedule](optimizer)
        for _ in problem.steps():
            optimizer.step()
            scheduler.step()
        return problem.result()

    both(run)


def test_plateau_reads_a_device_loss() -> None:
    problem = Problem("tpu", torch.float32)
    optimizer = torch.optim.SGD(problem.parameters, lr=1.0)
    scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    for loss in (3.0, 2.0, 2.0, 2.0, 2.0):
        scheduler.step(torch.tensor(loss, device="tpu"))
    assert optimizer.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize("average", [None, get_ema_multi_avg_fn(0.9)], ids=["mean", "ema"])
def test_averaged_model(average: Any) -> None:
    def run(device: str, dtype: torch.dtype) -> dict[str, Tensor]:
        own = copy.deepcopy(model).to(device, dtype)
        averaged = AveragedModel(own, multi_avg_fn=average, use_buffers=average is not None)
        optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
        inputs = [x.to(device, dtype) for x in data]
        for x in inputs:
            optimizer.zero_grad()
            own(x).square().mean().backward()
            optimizer.step()
            averaged.update_parameters(own)
        update_bn(inputs, averaged)
        return {key: value.cpu() for key, value in averaged.state_dict().items()}

    model = nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 4))
    data = [torch.randn(12, 8) for _ in range(STEPS)]
    assert_all_near(run("tpu", torch.float32), run("cpu", torch.float64))


def test_a_new_learning_rate_compiles_nothing() -> None:
    for form in FORMS:
        problem = Problem("tpu", torch.float32)
        optimizer = torch.optim.AdamW(problem.parameters, lr=1e-2, **form)
        compiled = []
        for i, _ in enumerate(problem.steps()):
            optimizer.param_groups[0]["lr"] = 1e-2 / (i + 1)
            optimizer.step()
            compiled.append(torch.tpu.counters()["compiles"])
        assert compiled[2:] == [compiled[1]] * (STEPS - 2), form


def test_closure() -> None:
    def run(device: str, dtype: torch.dtype) -> Tensor:
        x = nn.Parameter(torch.tensor([-1.5, 2.0], dtype=dtype, device=device))
        optimizer = torch.optim.LBFGS([x], lr=0.5, max_iter=8)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = (1 - x[0]) ** 2 + 10 * (x[1] - x[0] ** 2) ** 2
            loss.backward()
            return loss

        optimizer.step(closure)
        return x.detach()

    assert_near(run("tpu", torch.float32), run("cpu", torch.float64), tolerance=1e-4)
