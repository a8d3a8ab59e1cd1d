"""What fails, fails where it was called if that can be known, else where a dependant is read; nothing else is hurt."""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.eager.fusing import WAYS, Counts, forget, pending, running, settled
from torus import _C, runtime
from torus.backend.eager import fuse, seam
from torus.backend.eager.worker import Worker


@pytest.fixture(autouse=True)
def _recording() -> Iterator[None]:
    with running():
        yield
        try:
            torch.tpu.synchronize()
        except IndexError:
            pytest.fail("a failure was left behind")


def rows() -> Tensor:
    return settled(torch.arange(12.0, device="tpu").reshape(4, 3))[0]


def index(value: int) -> Tensor:
    return settled(torch.tensor([0, value], device="tpu"))[0]


def caught(read: Callable[[], object]) -> IndexError:
    with pytest.raises(IndexError) as info:
        read()
    return info.value


# At once

REFUSALS = (RuntimeError, IndexError, ValueError)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x + torch.ones(5, device="tpu"),
        lambda x: x @ x,
        lambda x: x.to(torch.int64).mul_(1.5),
        lambda x: torch.cat([x, x[:, :2]]),
        lambda x: x.view(5),
        lambda x: x.sum(7),
        lambda x: x.to(torch.int64).mean(),
        lambda x: x.gather(0, torch.zeros(1, 1, device="tpu")),
        lambda x: x.expand(2, 4, 3)[0].t().add_(torch.ones(9, device="tpu")),
        lambda x: F.cross_entropy(x, torch.zeros(7, dtype=torch.int64, device="tpu")),
    ],
)
def test_shapes_and_dtypes_are_checked_at_once(call: Callable[[Tensor], object], device: str) -> None:
    x = rows()
    y = x + 1
    counts = Counts()
    with pytest.raises(REFUSALS) as recorded:
        call(x)
    assert counts.host_reads == 0
    with running("strict"), pytest.raises(REFUSALS) as strict:
        call(x)
    assert (recorded.type, str(recorded.value)) == (strict.type, str(strict.value))
    assert y.sum().item() == 78.0


# Where a dependant is read


def select_a_bad_row(x: Tensor) -> Tensor:
    bad = index(9)
    return x.index_select(0, bad)


def bad_line() -> str:
    _, first = inspect.getsourcelines(select_a_bad_row)
    return f"{__file__}:{first + 2}"


@pytest.mark.parametrize("way", WAYS[1:])
def test_an_index_error_names_the_op_and_the_line(way: str, device: str) -> None:
    with running(way):
        for _ in range(3):
            y = select_a_bad_row(rows()) * 2
            error = caught(lambda y=y: y.sum().item())
            assert "index 9 is out of bounds for dimension 0 with size 4" in str(error)
            (note,) = error.__notes__
            assert "aten::index_select" in note and bad_line() in note and "select_a_bad_row" in note


CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "index": lambda x: x[index(9)],
    "gather": lambda x: x.gather(0, index(9)[:, None]),
    "embedding": lambda x: F.embedding(index(9), x),
    "take": lambda x: x.take(index(90)),
    "index_put": lambda x: x.index_put((index(9),), torch.ones(3, device="tpu")),
    "scatter": lambda x: x.scatter(0, index(9)[:, None], 1.0),
    "index_add": lambda x: x.index_add(0, index(9), torch.ones(2, 3, device="tpu")),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_only_dependants_fail(call: Callable[[Tensor], Tensor], device: str) -> None:
    for _ in range(2):
        x = rows()
        before = x + 1
        bad = call(x)
        after = x * 2
        also_bad = bad.sum() + after.sum()
        assert before.sum().item() == 78.0
        assert after.sum().item() == 132.0
        for tensor in (bad, also_bad, bad[0]):
            caught(tensor.cpu)
        assert (x + 1).sum().item() == 78.0


def test_checks_are_looked_at_when_a_result_is_read(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    look = seam.raise_failed_checks
    monkeypatch.setattr(seam, "raise_failed_checks", lambda texts, found: looks.extend(texts) or look(texts, found))
    x, last = torch.eye(700, device="tpu"), index(3)
    settled(x)
    y = (torch.linalg.matrix_power(x, 200)[last] * 2).sum(1)
    free = x.trace() + 1
    settled(y)
    assert not looks, "a launch waits for its checks"
    assert free.item() == 701.0
    assert y.tolist() == [2.0, 2.0] and len(looks) == 1


def test_programs_after_a_failed_check_fail_too(device: str) -> None:
    bad, good = select_a_bad_row(rows()) * 2, rows() + 1
    settled(bad, good)
    twice = bad + 1
    assert good.sum().item() == 78.0
    settled(twice)
    assert bad_line() in caught(twice.cpu).__notes__[0]
    assert caught(bad.cpu) is caught(twice.cpu)


def test_a_failed_write_fails_what_it_wrote(device: str) -> None:
    x, y = rows(), rows()
    x[index(9)] = 0.0
    y.add_(1)
    caught(x.cpu)
    assert y.sum().item() == 78.0
    x.copy_(y)
    assert x.sum().item() == 78.0, "a tensor that is written anew is whole again"


def test_an_op_on_what_has_failed_raises_at_once(device: str) -> None:
    bad = select_a_bad_row(rows())
    caught(bad.cpu)
    assert bad_line() in caught(lambda: bad + 1).__notes__[0]
    with running("strict"):
        caught(lambda: bad + 1)
    assert caught(bad.cpu) is caught(bad.tolist)


def test_notes_do_not_pile_up(device: str) -> None:
    bad = select_a_bad_row(rows())
    for _ in range(3):
        assert len(caught(bad.cpu).__notes__) == 1


def test_an_error_keeps_no_frames_alive(device: str) -> None:
    bad = select_a_bad_row(rows())
    for _ in range(3):
        error = caught(bad.cpu)
    depth, trace = 0, error.__traceback__
    while trace is not None:
        depth, trace = depth + 1, trace.tb_next
    assert depth < 8


@pytest.mark.parametrize("wait", [torch.tpu.synchronize, torch.accelerator.synchronize], ids=["tpu", "accelerator"])
def test_synchronize_raises_what_nobody_has_seen(wait: Callable[[], Any], device: str) -> None:
    bad = select_a_bad_row(rows())
    assert bad_line() in caught(wait).__notes__[0]
    wait()
    caught(bad.cpu)
    wait()


def test_synchronize_does_not_raise_what_was_seen(device: str) -> None:
    bad = select_a_bad_row(rows())
    caught(bad.cpu)
    torch.tpu.synchronize()


def test_a_failure_of_what_is_dead_is_seen_too(device: str) -> None:
    select_a_bad_row(rows())
    assert "index 9" in str(caught(torch.tpu.synchronize))


def test_the_first_of_several_failures_is_not_lost(device: str) -> None:
    x = rows()
    first, second = x.index_select(0, index(9)), x.index_select(0, index(8))
    assert "index 8" in str(caught(second.cpu))
    assert "index 9" in str(caught(torch.tpu.synchronize))
    caught(first.cpu)


def test_backward_of_a_failure(device: str) -> None:
    x = rows().requires_grad_()
    x.index_select(0, index(9)).sum().backward()
    caught(lambda: x.grad.cpu())
    caught(torch.tpu.synchronize)  # the forward pass has failed too
    x.grad = None
    (x * 2).sum().backward()
    assert x.grad.tolist() == [[2.0] * 3] * 4


def test_a_failure_of_another_thread(device: str) -> None:
    found: list[Tensor] = []
    thread = threading.Thread(target=lambda: found.append(select_a_bad_row(rows())))
    thread.start()
    thread.join()
    x = rows() + 1
    assert x.sum().item() == 78.0
    assert bad_line() in caught(found[0].cpu).__notes__[0]


def test_indices_in_range_stay_right_after_a_failure(device: str) -> None:
    x = rows()
    for value in (1, 9, 2, 9, 3):
        picked = x.index_select(0, index(value))
        if value == 9:
            caught(picked.cpu)
        else:
            assert picked.tolist() == [[0.0, 1.0, 2.0], [3.0 * value, 3.0 * value + 1, 3.0 * value + 2]]


# What fails in the fusing itself


def break_composing(monkeypatch: pytest.MonkeyPatch) -> None:
    def compose(*args: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(fuse, "compose", compose)


def break_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_any = runtime.programs.get_or_compile

    def compile_single_ops(text: str, *args: object) -> object:
        if "call @f0.main" in text:
            raise RuntimeError("planted")
        return compile_any(text, *args)

    monkeypatch.setattr(runtime.programs, "get_or_compile", compile_single_ops)


@pytest.mark.parametrize("break_it", [break_composing, break_compiling])
@pytest.mark.parametrize("way", ["background", "foreground"])
def test_a_program_that_cannot_be_made(
    break_it: Callable[[pytest.MonkeyPatch], None],
    way: str,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
) -> None:
    x = rows()
    forget()
    find = runtime.programs.lookup_signature
    monkeypatch.setattr(fuse.Segment, "key", lambda self: b"never seen " + os.urandom(8))
    assert find(b"never seen") is None
    break_it(monkeypatch)
    with running(way):
        for _ in range(5):
            y = (x * 5).roll(1, 0).roll(1, 0) + 3
            y = y.roll(2, 0)
            assert torch.equal(y.cpu(), x.cpu() * 5 + 3)
            assert fuse.wait_for_compiles(60)
    found = [w for w in recwarn if issubclass(w.category, fuse.FusionWarning)]
    assert len(found) == 1 and "planted" in str(found[0].message)


def test_the_compiling_thread_outlives_a_warning_that_is_an_error(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    done = threading.Event()

    def fails() -> None:
        raise fuse.FusionWarning("planted")

    worker.submit(fails)
    worker.submit(done.set)
    try:
        assert worker.wait(5) and done.is_set()
    finally:
        worker.stop()


def test_a_tensor_that_was_pending_is_pending_after_an_error_elsewhere(device: str) -> None:
    x = rows() + 1
    with pytest.raises(RuntimeError):
        x @ x
    assert pending(x) and _C.pending_ops(x)[1] == 0
    assert x.sum().item() == 78.0
