"""Many threads record, differentiate and read at once: right values, nothing lost, nothing stuck."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from tests.eager.fusing import WAYS, Counts, running, settled
from tests.eager.together import numbered, together
from torus import _C

THREADS = 4


@pytest.fixture(autouse=True, params=WAYS[1:])
def _recording(request: pytest.FixtureRequest) -> Iterator[None]:
    """In each way of fusing, with threads that take turns a thousand times as often as they would."""
    interval = sys.getswitchinterval()
    with running(request.param):
        sys.setswitchinterval(5e-6)
        yield
        sys.setswitchinterval(interval)


def test_threads_record_apart(device: str) -> None:
    def job(number: int) -> None:
        for i in range(60):
            x = torch.full((5,), float(number), device=device)
            for j in range(6):
                x = x * 2 + j * i
            expected = number * 64.0 + sum(j * i * 2 ** (5 - j) for j in range(6))
            assert x.tolist() == [expected] * 5

    together(*numbered(job, THREADS))


def test_threads_share_arguments(device: str) -> None:
    weight = settled(torch.arange(16.0, device=device).reshape(4, 4))[0]

    def job(number: int) -> None:
        for i in range(40):
            x = (weight @ weight + number) * i
            expected = (weight.cpu() @ weight.cpu() + number) * i
            assert torch.equal(x.cpu(), expected)

    together(*numbered(job, THREADS))


def test_traces_of_threads_become_one(device: str) -> None:
    """Each thread hands a pending tensor to the next."""
    boxes: list[queue.Queue[Tensor]] = [queue.Queue() for _ in range(THREADS)]
    turns = 20

    def job(number: int) -> None:
        for _ in range(turns):
            x = boxes[number].get(timeout=60)
            boxes[(number + 1) % THREADS].put(x * 1 + (number + 1))

    boxes[0].put(torch.zeros(3, device=device))
    together(*numbered(job, THREADS))
    assert boxes[0].get().tolist() == [10.0 * turns] * 3


def test_one_reads_what_others_record(device: str) -> None:
    done: queue.Queue[tuple[Tensor, float]] = queue.Queue()

    def writer(number: int) -> None:
        x = torch.zeros(4, device=device)
        for i in range(50):
            x = x + number
            done.put((x, float(number * (i + 1))))

    def reader() -> None:
        for _ in range(50 * THREADS):
            x, value = done.get(timeout=60)
            assert x.tolist() == [value] * 4

    together(reader, *numbered(writer, THREADS))


def test_one_synchronizes_while_others_record(device: str) -> None:
    stop = threading.Event()

    def recorder() -> None:
        x = torch.zeros(4, device=device)
        count = 0
        while not stop.is_set():
            x, count = x + 1, count + 1
        assert x.tolist() == [float(count)] * 4

    def waiter() -> None:
        try:
            for _ in range(10):
                torch.tpu.synchronize()
                event = torch.tpu.Event()
                event.record()
                event.synchronize()
        finally:
            stop.set()

    together(waiter, recorder, recorder)


def gradients(device: str, seed: int, rounds: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(*shape, generator=generator) for shape in ((5, 8), (8, 3))]
    leaves = [weight.to(device).requires_grad_() for weight in weights]
    x = torch.randn(4, 5, generator=generator).to(device)
    for _ in range(rounds):
        ((x @ leaves[0]).tanh() @ leaves[1]).square().mean().backward()
        with torch.no_grad():
            for leaf in leaves:
                leaf.sub_(leaf.grad, alpha=0.1)
                leaf.grad = None
    return [leaf.detach().cpu() for leaf in leaves]


@pytest.mark.slow
def test_training_in_every_thread(device: str) -> None:
    expected = [gradients("cpu", seed, 10) for seed in range(THREADS)]

    def job(number: int) -> None:
        for actual, wanted in zip(gradients(device, number, 10), expected[number], strict=True):
            torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=1e-5)

    together(*numbered(job, THREADS))


def test_backward_into_shared_leaves(device: str) -> None:
    leaf = torch.ones(3, device=device, requires_grad=True)

    def job(number: int) -> None:
        for i in range(15):
            (leaf * (number + i)).sum().backward()

    together(*numbered(job, THREADS))
    assert leaf.grad.tolist() == [float(sum(n + i for n in range(THREADS) for i in range(15)))] * 3


def test_hooks_that_read(device: str) -> None:
    """The autograd engine's thread runs the trace that the forward pass recorded."""

    def job(number: int) -> None:
        for i in range(10):
            seen: list[float] = []
            x = torch.full((3,), float(i), device=device, requires_grad=True)
            y = x * number
            y.register_hook(lambda grad, seen=seen: seen.append(grad.sum().item()))
            (y * 2).sum().backward()
            assert seen == [6.0] and x.grad.tolist() == [2.0 * number] * 3

    together(*numbered(job, THREADS))


def test_batches_come_from_other_threads(device: str) -> None:
    """As a data loader with a thread for the transfers does it."""
    batches: queue.Queue[Tensor | None] = queue.Queue(maxsize=3)
    model = nn.Linear(4, 2).to(device)
    reference = nn.Linear(4, 2)
    reference.load_state_dict({name: value.cpu() for name, value in model.state_dict().items()})

    def load() -> None:
        for i in range(20):
            batches.put(torch.full((3, 4), float(i)).to(device) * 2 - 1)
        batches.put(None)

    def work() -> None:
        i = 0
        while (batch := batches.get(timeout=60)) is not None:
            expected = reference(torch.full((3, 4), float(i)) * 2 - 1)
            torch.testing.assert_close(model(batch).cpu(), expected, rtol=1e-5, atol=1e-5)
            i += 1
        assert i == 20

    together(load, work)


def test_tensors_die_in_other_threads(device: str) -> None:
    (start,) = settled(torch.zeros(1 << 13, device=device))
    torch.tpu.empty_cache()
    before = torch.tpu.memory_allocated()
    handed: queue.Queue[Tensor | None] = queue.Queue()

    def make() -> None:
        for i in range(60):
            handed.put((start + i).neg())
        handed.put(None)

    def drop() -> None:
        i = 0
        while (x := handed.get(timeout=60)) is not None:
            assert i % 3 or x[0].item() == -i
            i += 1

    together(make, drop)
    settled()
    torch.tpu.empty_cache()
    assert torch.tpu.memory_allocated() == before


def test_threads_draw_different_numbers(device: str, seed: int) -> None:
    drawn: list[Tensor] = []

    def job(number: int) -> None:
        for _ in range(25):
            drawn.append(torch.rand(4, device=device))

    together(*numbered(job, THREADS))
    assert len({tuple(x.tolist()) for x in drawn}) == THREADS * 25


def test_programs_are_forgotten_while_they_run(device: str) -> None:
    x = settled(torch.arange(4.0, device=device))[0]

    def job(number: int) -> None:
        for i in range(30):
            if number == 0 and i % 10 == 0:
                _C.clear_programs()
            assert ((x + i) * 2).tolist() == [2.0 * (j + i) for j in range(4)]

    together(*numbered(job, THREADS))


@pytest.mark.slow
def test_everything_at_once(device: str) -> None:
    counts = Counts()
    shared = torch.zeros(4, device=device)
    lock = threading.Lock()

    def job(number: int) -> None:
        for i in range(15):
            with lock:
                shared.add_(1)
            x = torch.rand(8, device=device, requires_grad=True)
            y = (x * (number + 1)).sum() + shared.sum() * 0
            y.backward()
            assert x.grad.tolist() == [number + 1.0] * 8
            if i % 5 == 4:
                torch.tpu.synchronize()
            if i % 7 == 6:
                with pytest.raises(RuntimeError):
                    x @ torch.ones(3, 3, device=device)

    together(*numbered(job, THREADS))
    assert shared.tolist() == [15.0 * THREADS] * 4 and counts.flushes > 0
