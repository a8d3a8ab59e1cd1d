"""When fused programs are made: not before they are worth it, never in the way, and once for all processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.device.process import run
from tests.eager.fusing import Counts, forget, running, settled
from torus import runtime
from torus.backend.eager import fuse, rehearsal


@pytest.fixture(autouse=True)
def _recording() -> Iterator[None]:
    with running("background"):
        yield
        fuse.wait_for_compiles(60)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No fused program is on disk, nor known to this process."""
    forget()
    start = fuse.Segment.key
    monkeypatch.setattr(fuse, "_VERSION", f"test {id(monkeypatch)} {torch.rand(()).item()}")
    assert start is fuse.Segment.key


def rows() -> Tensor:
    return settled(torch.arange(12.0, device="tpu").reshape(4, 3))[0]


def chain(x: Tensor) -> Tensor:
    return ((x + 3) * 2).cos().sum(1)


def programs(x: Tensor) -> int:
    """How many the chain takes now: 4 one by one, 1 fused."""
    counts = Counts()
    expected = ((x.cpu() + 3) * 2).cos().sum(1)
    torch.testing.assert_close(chain(x).cpu(), expected, rtol=1e-6, atol=1e-6)
    return counts.programs


@pytest.mark.usefixtures("fresh")
def test_the_first_calls_run_op_by_op_and_later_ones_fused(device: str) -> None:
    x = rows()
    assert programs(x) == 4
    assert programs(x) == 4, "the second call asks for the program and does not wait for it"
    assert fuse.wait_for_compiles(60)
    assert programs(x) == programs(x) == 1


@pytest.mark.usefixtures("fresh")
def test_what_comes_once_is_not_compiled(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(fuse, "_make", lambda number, segment: asked.append(number))
    x = rows()
    programs(x)
    assert fuse.wait_for_compiles(60) and asked == []


@pytest.mark.usefixtures("fresh")
def test_a_call_does_not_wait_for_the_compiler(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler is held up until calls have come and gone."""
    from threading import Event

    go, made = Event(), fuse._make

    def held_up(number: int, segment: fuse.Segment) -> None:
        assert go.wait(60)
        made(number, segment)

    monkeypatch.setattr(fuse, "_make", held_up)
    x = rows()
    assert [programs(x) for _ in range(5)] == [4] * 5
    go.set()
    assert fuse.wait_for_compiles(60)
    assert programs(x) == 1


@pytest.mark.usefixtures("fresh")
def test_the_foreground_compiles_at_once(device: str) -> None:
    torch.tpu.fusing = "foreground"
    x = rows()
    assert programs(x) == programs(x) == 1


@pytest.mark.usefixtures("fresh")
def test_never_means_never(device: str) -> None:
    torch.tpu.fusing = "never"
    x = rows()
    assert [programs(x) for _ in range(4)] == [4] * 4


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("later", ["foreground", "background"])
def test_fusing_that_is_switched_on_later(later: str, device: str) -> None:
    torch.tpu.fusing = "never"
    x = rows()
    for _ in range(4):
        programs(x)
    torch.tpu.fusing = later
    programs(x)
    programs(x)
    assert fuse.wait_for_compiles(60)
    assert programs(x) == 1


@pytest.mark.usefixtures("fresh")
def test_what_is_on_disk_is_fused_from_the_first_call(device: str) -> None:
    torch.tpu.fusing = "foreground"
    x = rows()
    programs(x)
    forget()
    torch.tpu.fusing = "background"
    counts = Counts()
    assert programs(x) == 1 and counts.compiles == 0


def long_chain(x: Tensor) -> Tensor:
    """More ops than a program may have that a call waits for; no loop, which would be cut."""
    for i in range(70):
        x = (x.cos() if i % 7 in (0, 3) else x + i) if i % 3 else x * 0.5
    return x


@pytest.mark.usefixtures("fresh")
def test_no_call_waits_for_a_large_program_on_disk(device: str) -> None:
    torch.tpu.fusing = "foreground"
    x = rows()
    expected = long_chain(x).cpu()
    forget()
    torch.tpu.fusing = "background"
    counts = Counts()
    assert torch.equal(long_chain(x).cpu(), expected)
    assert counts.programs > 60
    assert fuse.wait_for_compiles(60)
    counts = Counts()
    assert torch.equal(long_chain(x).cpu(), expected)
    assert counts.programs == 1 and counts.compiles == 0


@pytest.mark.usefixtures("fresh")
def test_a_large_program_that_is_damaged_is_compiled_again(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.tpu.fusing = "foreground"
    x = rows()
    expected = long_chain(x).cpu()
    forget()
    torch.tpu.fusing = "background"
    monkeypatch.setattr(fuse, "_load", lambda segment: None)
    assert torch.equal(long_chain(x).cpu(), expected)
    assert fuse.wait_for_compiles(60)
    counts = Counts()
    assert torch.equal(long_chain(x).cpu(), expected)
    assert counts.programs == 1


def test_what_may_not_end_is_not_rehearsed() -> None:
    assert rehearsal.describe("... stablehlo.while(...)", [((2,), "float32")]) == b""
    assert rehearsal.describe("... stablehlo.add ...", [((2,), "float32")]) == b'[[[2], "float32"]]'


def test_a_rehearsal_runs_once_within_its_memory(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, avals = runtime.lower(lambda x: x + 1, [((1000,), "bfloat16")])
    program = runtime.programs.get_or_compile(text, avals)
    about = rehearsal.describe(text, [((1000,), "bfloat16")])
    shapes: list[object] = []
    monkeypatch.setattr(type(program), "__call__", lambda self, arrays: shapes.extend(a.shape for a in arrays) or [])
    rehearsal.run(program, about, 0)
    assert shapes == [(1000,)]
    rehearsal.run(program, about, 1 << 40)
    assert shapes == [(1000,)]


@pytest.mark.usefixtures("fresh")
def test_equal_segments_of_different_traces_are_one_program(device: str) -> None:
    """A long trace is cut into pieces; those that are alike share a program, which is fused within the first run."""
    torch.tpu.fusing = "foreground"
    x = rows()
    counts = Counts()
    for _ in range(3000):
        x = x * 1.0001
    settled()
    assert counts.compiles <= 12 and counts.programs <= 16


INFERENCE = """
    import torch, torus
    from torus.backend.eager import fuse
    torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).to("tpu")
    x = torch.randn(5, 4, device="tpu")
    torch.tpu.synchronize()
    programs = []
    for i in range(4):
        before = torch.tpu.counters()["programs"]
        loss = torch.nn.functional.dropout(model(x), 0.1).square().mean().item()
        programs.append(torch.tpu.counters()["programs"] - before)
        fuse.wait_for_compiles(60)
    print(f"{loss:.6f}", *programs, torch.tpu.counters()["compiles"])
"""


@pytest.mark.slow
def test_a_second_process_compiles_nothing_and_is_fused_at_once(tmp_path: Path) -> None:
    first, second = (
        run(INFERENCE, TORUS_CACHE_DIR=str(tmp_path), TORCH_DEVICE_BACKEND_AUTOLOAD="0").split() for _ in range(2)
    )
    assert first[0] == second[0]
    assert int(first[1]) > 4 and int(first[-2]) == 1 and int(first[-1]) > 4
    assert second[1:] == ["1", "1", "1", "1", "0"]


@pytest.mark.slow
def test_settings_of_the_compiler_are_part_of_a_program(device: str) -> None:
    torch.tpu.fusing = "foreground"
    x = rows()
    programs(x)
    allowed = torch.tpu.allow_excess_precision
    try:
        torch.tpu.allow_excess_precision = not allowed
        forget()
        assert programs(x) == 1
    finally:
        torch.tpu.allow_excess_precision = allowed
        forget()
