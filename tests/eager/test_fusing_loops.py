"""Loops: few programs whatever the numbers and the lengths, and flat memory. Rows B4, B24, B26, B27 in this mode."""

from __future__ import annotations

import gc
import random
import resource
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.device.process import run, run_unchecked
from tests.eager.fusing import Counts, running, settled
from torus import _C
from torus.backend.eager import fuse

MEGABYTE = 2**20


@pytest.fixture(autouse=True)
def _recording() -> Iterator[None]:
    torch.manual_seed(0)
    with running(), warnings.catch_warnings():
        warnings.simplefilter("error", fuse.FusionWarning)
        yield
        settled()


def resident() -> int:
    """Bytes of this process that are in memory now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def made(counts: Counts) -> int:
    """Programs that were new to this process."""
    return counts.compiles + counts.cache_hits


@pytest.mark.slow
def test_b04_changing_scalars(device: str) -> None:
    """The trace is cut by its size at whole turns: one program for full traces, and one or two for the rest."""
    counts = Counts()
    x = torch.ones(16, device=device)
    expected = torch.ones(16)
    for i in range(10_000):
        x = x * (1 + i / 1e9)
        expected = expected * (1 + i / 1e9)
    settled()
    gc.collect()  # what earlier tests left in cycles does not count
    live, memory, warm = torch.tpu.memory_allocated(), resident(), Counts()
    assert made(counts) <= 16
    for i in range(90_000):
        x = x * (1 + i / 1e9)
    settled()
    assert made(warm) <= 4
    assert torch.tpu.memory_allocated() <= live
    assert resident() - memory < 8 * MEGABYTE
    assert warm.programs <= 90_000 / 500
    assert x.isfinite().all()


def test_b04_changing_scalars_in_place(device: str) -> None:
    x, y = torch.zeros(16, device=device), torch.zeros(16)
    counts = Counts()
    for i in range(3_000):
        x.add_(i / 1024)
        y.add_(i / 1024)
    assert torch.equal(x.cpu(), y)
    assert made(counts) <= 12
    memory, warm = resident(), Counts()
    for i in range(3_000):
        x.add_(i / 1024)
    settled()
    assert made(warm) <= 2 and resident() - memory < 5 * MEGABYTE


@pytest.mark.parametrize("form", [{"foreach": True}, {"foreach": False}, {"fused": True}], ids=str)
def test_b24_changing_learning_rate(form: dict[str, bool], device: str) -> None:
    parameter = nn.Parameter(torch.ones(8, device=device))
    optimizer = torch.optim.AdamW([parameter], lr=0.1, **form)
    parameter.grad = torch.ones_like(parameter)
    for step in range(7):
        optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)
        optimizer.step()
        settled()
        if step == 2:
            warm = Counts()
    assert made(warm) == 0


def test_b24_scalars_that_become_equal(device: str) -> None:
    (x,) = settled(torch.ones(8, device=device))

    def job(a: float, b: float) -> Tensor:
        return torch.addcmul(x * a, x, x, value=b) + torch.add(x, x, alpha=b) * a

    settled(job(2.0, 3.0))
    warm = Counts()
    for a, b in [(0.5, 0.25), (0.25, 0.25), (0.0, 0.0), (-1.0, 2.0)]:
        assert torch.equal(job(a, b).cpu(), torch.full((8,), a + b + (1 + b) * a))
    assert made(warm) == 0


def test_b24_a_usual_scalar_is_one_more_program(device: str) -> None:
    """``alpha=1`` is a constant of its program: leaving it and coming back compiles once each."""
    (x,) = settled(torch.ones(8, device=device))
    warm = Counts()
    for alpha in (1, 2, 1, 3, 1, 1, 4):
        assert torch.add(x, x * 2, alpha=alpha).tolist() == [1.0 + 2 * alpha] * 8
    assert made(warm) <= 2


@pytest.mark.slow
def test_b26_randn_in_a_loop(device: str) -> None:
    def loop(turns: int) -> Tensor:
        x = torch.zeros(32, device=device)
        for i in range(turns):
            x = x * 0.9 + torch.randn(32, device=device) * (i % 7)
        return x

    assert loop(300).isfinite().all()
    memory, live, warm = resident(), torch.tpu.memory_allocated(), Counts()
    for _ in range(3):
        assert loop(300).isfinite().all()
    assert made(warm) == 0
    assert torch.tpu.memory_allocated() == live
    assert resident() - memory < 5 * MEGABYTE


@pytest.mark.slow
def test_b26_loops_of_varying_length(device: str) -> None:
    """A thousand turns in loops of 1 to 60 turns: at most a program for each power of two and each few lengths."""

    def loop(turns: int) -> Tensor:
        x = torch.zeros(32, device=device)
        for i in range(turns):
            x = (x * (0.9 + i / 1e4) + torch.randn(32, device=device)).tanh()
        return x

    lengths = [random.Random(3).randint(1, 60) for _ in range(40)]
    counts = Counts()
    torch.manual_seed(1)
    found = [loop(turns).cpu() for turns in lengths]
    assert made(counts) <= 40
    memory, warm = resident(), Counts()
    for _ in range(2):
        for turns in lengths:
            settled(loop(turns))
    assert made(warm) <= 2
    assert resident() - memory < 8 * MEGABYTE
    with running("strict"):
        torch.manual_seed(1)
        for turns, actual in zip(lengths, found, strict=True):
            torch.testing.assert_close(actual, loop(turns).cpu(), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_new_lengths_need_no_new_programs(device: str) -> None:
    """When a loop has come with a few lengths, others are made of what is there."""

    def loop(turns: int) -> Tensor:
        x = torch.zeros(16, device=device)
        for i in range(turns):
            x = (x + i).cos() * 0.5
        return x

    for turns in (63, 64, 65, 66, 67, 95, 127):
        settled(loop(turns))
    warm = Counts()
    for turns in range(70, 110):
        settled(loop(turns))
    assert made(warm) <= 8, "the powers of two that had not come yet"


@pytest.mark.slow
def test_b27_layer_wise_learning_rate_decay(device: str) -> None:
    layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3)).to(device)
    groups = [{"params": layer.parameters(), "lr": 0.1 * 0.5**i} for i, layer in enumerate(layers)]
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    for parameter in layers.parameters():
        parameter.grad = torch.ones_like(parameter)

    def steps(first: int, last: int) -> None:
        for i in range(first, last):
            for depth, group in enumerate(optimizer.param_groups):
                group["lr"] = 0.1 * 0.5**depth / (1 + i)
            optimizer.step()
        settled()

    steps(0, 300)
    steps(300, 600)
    warm, memory, live = Counts(), resident(), torch.tpu.memory_allocated()
    steps(600, 900)
    steps(900, 1200)
    steps(1200, 1500)
    assert made(warm) == 0
    assert torch.tpu.memory_allocated() == live
    assert resident() - memory < 5 * MEGABYTE


def test_a_loop_that_reads_each_turn_is_one_program(device: str) -> None:
    x, total = torch.ones(8, device=device), 0.0
    for i in range(60):
        x = x * (1 + i / 1e4) + torch.rand(8, device=device)
        total += x.sum().item()
        if i == 2:
            warm = Counts()
    assert made(warm) == 0 and warm.programs == warm.flushes == 57


# Storms


KINDS: list[Callable[[Tensor], Tensor]] = [torch.neg, torch.abs, torch.relu, torch.sign, torch.square]


def new_trace(x: Tensor, choose: random.Random, length: int = 12) -> tuple[Tensor, Tensor]:
    """A chain of ops that nobody has seen, on the device and on the host."""
    y = x.cpu()
    for _ in range(length):
        kind = choose.choice(KINDS)
        x, y = kind(x), kind(y)
    return x, y


def no_programs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Fused programs are asked for, which is counted, and never made."""
    asked: list[int] = []

    def make(number: int, segment: fuse.Segment) -> None:
        asked.append(number)
        _C.fused_failed(number)

    monkeypatch.setattr(fuse, "_make", make)
    return asked


@pytest.mark.slow
def test_a_storm_is_said_once_and_stays_right() -> None:
    """In a process of its own, which says it once."""
    out = run(
        """
        import random, warnings
        import torch, torus
        from torus import _C
        from torus.backend.eager import fuse
        asked = []
        fuse._make = lambda number, segment: (asked.append(number), _C.fused_failed(number))
        torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE
        torch.tpu.fusing = "foreground"
        choose = random.Random(1)
        x = torch.arange(-3.0, 3.0, device="tpu")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(400):
                y, z = x, x.cpu()
                for _ in range(12):
                    kind = choose.choice([torch.neg, torch.abs, torch.relu, torch.sign, torch.square])
                    y, z = kind(y), kind(z)
                assert torch.equal(y.cpu(), z)
        said = [str(w.message) for w in seen if issubclass(w.category, fuse.FusionWarning)]
        print(len(said), "other operators, or another number of them, each time" in said[0], len(asked) <= 64)
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert out == "1 True True"


def test_a_storm_beside_a_trace_that_repeats(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = no_programs(monkeypatch)
    choose = random.Random(2)
    (x,) = settled(torch.arange(-3.0, 3.0, device=device))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(150):
            y, _ = new_trace(x, choose)
            y.sum().item()
            ((x + i) * 2).sum().item()
    assert len(asked) <= 100


@pytest.mark.slow
def test_programs_that_are_never_fused_are_no_storm() -> None:
    result = run_unchecked(
        """
        import torch, torus
        torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE
        torch.tpu.fusing = "never"
        x = torch.ones(4, device="tpu")
        for i in range(100):
            y = x
            for _ in range(i + 2):
                y = y + 1
            y.tolist()
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert (result.returncode, result.stderr) == (0, "")
