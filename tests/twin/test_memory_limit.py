"""A device with a limit of memory refuses what a chip of that size would refuse, and the process goes on."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from tests.device.process import run
from torus.backend.device import limit as memory
from torus.backend.eager import seam
from torus.runtime import client

MIB = 2**20
Limit = Callable[[int], None]


@pytest.fixture
def limit() -> Iterator[Limit]:
    """Leaves so many bytes on the device beside what is alive."""
    gc.collect()
    yield lambda nbytes: torch.tpu.set_memory_limit(torch.tpu.memory_allocated() + nbytes)
    torch.tpu.set_memory_limit(None)


@pytest.fixture(params=["strict", "fused", "compiled"])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "fused":
        with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):
            yield request.param
    else:
        yield request.param


def refused(call: Callable[[], object]) -> str:
    """The text with which a call is refused; nothing of the call stays alive."""
    try:
        call()
    except torch.OutOfMemoryError as error:
        return "\n".join([str(error), *getattr(error, "__notes__", [])])
    raise AssertionError("the call was not refused")


def alive() -> int:
    """Bytes alive once autograd's threads have let go of what they had."""
    for _ in range(20):
        gc.collect()
        torch.tpu.synchronize()
        before = torch.tpu.memory_allocated()
        time.sleep(0.05)
        if torch.tpu.memory_allocated() == before:
            break
    return before


def filled(mib: float) -> torch.Tensor:
    return torch.ones(int(mib * MIB) // 4, device="tpu")


def test_an_op_is_refused_and_says_what_lives_where(limit: Limit) -> None:
    limit(2 * MIB)
    x = filled(1)
    before = torch.tpu.memory_allocated()
    y = x * 2
    text = refused(lambda: x + 1)
    assert "RESOURCE_EXHAUSTED: TPU out of memory. Tried to allocate 1.0 MiB on tpu:0 for aten::add.Tensor." in text
    assert "0 B are free" in text
    assert re.search(r"1\.0 MiB  float32\[262144\], aten::mul\.Tensor, .*test_memory_limit\.py:\d+ in test_an_op", text)
    assert re.search(r"aten::\S+, .*test_memory_limit\.py:\d+ in filled", text)
    assert torch.tpu.memory_allocated() == before + MIB
    del y
    assert torch.equal((x + 1).cpu(), torch.full((MIB // 4,), 2.0))


def test_a_copy_from_the_host_is_refused(limit: Limit) -> None:
    limit(MIB)
    host = torch.zeros(MIB // 4 + 1)
    before = torch.tpu.memory_allocated()
    assert "for a copy from the host" in refused(lambda: host.to("tpu"))
    assert torch.tpu.memory_allocated() == before
    there = host[:-1].to("tpu")
    assert torch.tpu.memory_allocated() == before + MIB == torch.tpu.memory_limit()
    assert torch.tpu.mem_get_info() == (0, torch.tpu.memory_limit())
    assert torch.tpu.get_device_properties().total_memory == torch.tpu.memory_limit()
    assert any(row.made_by == "a copy from the host" and row.bytes == MIB for row in torch.tpu.live_tensors())
    del there


def test_what_a_program_needs_while_it_runs_counts(limit: Limit) -> None:
    @torch.compile(backend="tpu")
    def chain(x: torch.Tensor) -> torch.Tensor:
        return ((x @ x) @ x).sum()

    x = torch.ones(512, 512, device="tpu")
    limit(100 * MIB)
    torch.tpu.reset_peak_memory_stats()
    before = torch.tpu.memory_allocated()
    chain(x)
    needed = torch.tpu.max_memory_allocated() - before
    assert needed >= MIB  # the first product, beside a result of four bytes
    limit(needed - 1)
    assert "for a compiled graph" in refused(lambda: chain(x))
    limit(needed)
    chain(x)


def test_a_write_needs_room_for_the_new_value_only_while_it_is_made(limit: Limit) -> None:
    x = filled(1)
    limit(MIB)
    torch.tpu.reset_peak_memory_stats()
    for _ in range(3):
        x.add_(1)
    assert torch.tpu.max_memory_allocated() == torch.tpu.memory_limit()
    limit(MIB - 1)
    refused(lambda: x.add_(1))
    assert x[0].item() == 4


def test_a_step_is_refused_and_retried_with_a_smaller_batch(mode: str, limit: Limit) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 256), nn.Tanh(), nn.Linear(256, 1)).to("tpu")
    data = torch.randn(4096, 16).to("tpu")

    def loss_of(batch: torch.Tensor) -> torch.Tensor:
        return model(batch).square().mean()

    run_loss = torch.compile(loss_of, backend="tpu") if mode == "compiled" else loss_of

    def step(batch: torch.Tensor) -> list[torch.Tensor]:
        model.zero_grad()
        run_loss(batch).backward()
        return [p.grad.cpu() for p in model.parameters()]

    expected = step(data[:512])
    model.zero_grad()
    before = alive()
    limit(2 * MIB)  # a batch of 4096 keeps 4 MiB for the backward pass
    assert "out of memory" in refused(lambda: step(data))
    model.zero_grad()
    assert alive() == before
    for found, wanted in zip(step(data[:512]), expected, strict=True):
        torch.testing.assert_close(found, wanted)


def test_a_backward_pass_is_refused(mode: str, limit: Limit) -> None:
    x = torch.ones(MIB // 4, device="tpu", requires_grad=True)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x.sin().sum()

    call = torch.compile(function, backend="tpu") if mode == "compiled" else function

    def step() -> float:
        (gradient,) = torch.autograd.grad(call(x), [x])
        return gradient[0].item()

    expected = step()
    before = alive()
    out = [call(x)]
    torch.tpu.synchronize()
    limit(MIB - 1)
    assert "out of memory" in refused(lambda: torch.autograd.grad(out, [x])[0].cpu())
    out.clear()
    assert alive() == before
    limit(8 * MIB)
    assert step() == expected


def test_a_recorded_op_names_its_line(limit: Limit) -> None:
    with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):
        x = filled(1)
        torch.tpu.synchronize()
        limit(MIB)
        kept = [x + 1, x + 2]
        text = refused(lambda: [value.cpu() for value in kept])
        assert re.search(r"recorded at .*test_memory_limit\.py:\d+ in test_a_recorded_op", text)
        assert re.search(r"aten::add\.Tensor, .*test_memory_limit\.py:\d+ in test_a_recorded_op", text)
        kept.clear()
        assert (x + 1)[0].item() == 2


def test_a_fused_program_without_room_runs_op_by_op(limit: Limit) -> None:
    """Op by op the argument goes before the large result comes."""

    def programs() -> tuple[int, list[float]]:
        start = torch.ones(1, dtype=torch.float16, device="tpu")
        argument = filled(1)
        torch.tpu.synchronize()
        torch.tpu.reset_counters()
        small, large = argument.sum(), start.expand(MIB // 2) + 1
        del argument
        torch.tpu.synchronize()
        return torch.tpu.counters()["programs"], [small.item(), large[-1].item()]

    fusing, torch.tpu.fusing = torch.tpu.fusing, "foreground"
    try:
        with torch.tpu.set_eager_mode(torch.tpu.EagerMode.DEFER_AND_FUSE):
            assert programs() == (1, [MIB / 4, 2])
            limit(MIB + MIB // 2)
            assert programs() == (2, [MIB / 4, 2])
    finally:
        torch.tpu.fusing = fusing


def test_bad_limits() -> None:
    with pytest.raises(ValueError, match="4GiB"):
        torch.tpu.set_memory_limit("lots")
    with pytest.raises(ValueError, match="from 1 on"):
        torch.tpu.set_memory_limit(0)
    assert torch.tpu.memory_limit() is None


def test_each_device_has_the_limit_of_the_environment() -> None:
    said = run(
        """
        import torch, torus
        x = torch.ones(5 * 2**16, device="tpu:0")
        y = torch.ones(2**18, device="tpu:1")
        print(torch.tpu.memory_limit(0), *torch.tpu.mem_get_info(1))
        try:
            x.to("tpu:1")
        except torch.OutOfMemoryError as error:
            print(error)
        print((y + 1)[0].item())
        """,
        TORUS_HBM_LIMIT="2MiB",
        TORUS_DEVICE_COUNT="2",
        TORUS_PLATFORM="cpu",
    )
    first, *error, last = said.splitlines()
    assert first == f"{2 * MIB} {MIB} {2 * MIB}"
    assert "on tpu:1 for a copy from another device. 1.0 MiB of the limit of 2.0 MiB are in use" in error[0]
    assert last == "2.0"


def test_a_bad_limit_in_the_environment_is_an_error_of_the_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORUS_HBM_LIMIT", "plenty")
    memory.apply_settings()  # what `import torus` does
    with pytest.raises(ValueError, match="TORUS_HBM_LIMIT='plenty' is not understood; it accepts a number of bytes"):
        client._start("cpu")


def test_memory_that_a_runtime_does_not_have_is_the_same_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(array: object) -> object:
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.")

    def other(array: object) -> object:
        raise RuntimeError("INTERNAL: RESOURCE_EXHAUSTED elsewhere")

    x = torch.ones(2, device="tpu")
    monkeypatch.setattr(seam, "to_dlpack", exhausted)
    with pytest.raises(torch.OutOfMemoryError, match="RESOURCE_EXHAUSTED: Out of memory"):
        x.cpu()
    monkeypatch.setattr(seam, "to_dlpack", other)
    with pytest.raises(RuntimeError, match="INTERNAL") as raised:
        x.cpu()
    assert not isinstance(raised.value, torch.OutOfMemoryError)
