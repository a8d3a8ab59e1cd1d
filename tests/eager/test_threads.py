"""Many Python threads at once, and the autograd engine's own: right values, and nothing lost."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator

import pytest
import torch

from tests.eager.together import numbered, together
from torus import _C

THREADS = 4
ROUNDS = 100


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    """Threads take turns a thousand times as often as they would, so that what can go wrong does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


def test_scalars_of_one_thread_do_not_reach_another(device: str) -> None:
    """Each scalar is a new one, so that every call sends its own to the device."""
    ones = torch.ones(4, device=device)

    def job(number: int) -> None:
        for i in range(4 * ROUNDS):
            value = number * 100_000 + i
            assert (ones * value).tolist() == [float(value)] * 4

    together(*numbered(job, THREADS))


def test_scalars_that_come_again(device: str) -> None:
    """Few scalars, which the core remembers; between them new ones, which push them out."""
    ones = torch.ones(4, dtype=torch.int64, device=device)

    def job(number: int) -> None:
        for i in range(4 * ROUNDS):
            assert (ones + i % 7).tolist() == [1 + i % 7] * 4
            assert (ones + (number << 40 | i)).tolist() == [1 + (number << 40 | i)] * 4

    together(*numbered(job, THREADS))


def test_offsets_of_one_thread_do_not_reach_another(device: str) -> None:
    rows = torch.arange(1000.0, device=device).reshape(500, 2)

    def job(number: int) -> None:
        for i in range(2 * ROUNDS):
            row = (number * 131 + i) % 500
            assert (rows[row] + 0.5).tolist() == [2 * row + 0.5, 2 * row + 1.5]

    together(*numbered(job, THREADS))


def test_in_place_on_views(device: str) -> None:
    def job(number: int) -> None:
        x = torch.zeros(3, 4, device=device)
        for i in range(ROUNDS):
            x[i % 3].add_(number + 1)
            x.t()[i % 4].mul_(1)
        expected = [[(ROUNDS - row + 2) // 3 * (number + 1.0)] * 4 for row in range(3)]
        assert x.tolist() == expected

    together(*numbered(job, THREADS))


def test_rows_of_one_tensor_written_by_different_threads(device: str) -> None:
    """A write replaces the whole value, so the rows must be joined by a lock of the user's, as for any other writes."""
    x = torch.zeros(THREADS, 3, device=device)
    lock = threading.Lock()

    def job(number: int) -> None:
        for _ in range(ROUNDS):
            with lock:
                x[number] += 1

    together(*numbered(job, THREADS))
    assert x.tolist() == [[float(ROUNDS)] * 3] * THREADS


def test_a_tensor_is_read_whole_while_another_thread_writes_it(device: str) -> None:
    x = torch.zeros(64, device=device)

    def job(number: int) -> None:
        for i in range(2 * ROUNDS):
            if number == 0:
                x.fill_(i)
            else:
                read = {1: x.tolist, 2: lambda: (x + 0).tolist(), 3: lambda: [x.max().item(), x[5].item()]}[number]()
                assert all(value == int(value) for value in read)
                assert number == 3 or len(set(read)) == 1

    together(*numbered(job, THREADS))


def test_copies_both_ways(device: str) -> None:
    def job(number: int) -> None:
        for i in range(ROUNDS):
            sent = torch.arange(6.0).reshape(2, 3) + (number * 1000 + i)
            there = sent.to(device)
            twin = there.t().clone()
            sent.zero_()
            assert torch.equal(there.cpu() - (number * 1000 + i), torch.arange(6.0).reshape(2, 3))
            assert torch.equal(twin.cpu().t(), there.cpu())

    together(*numbered(job, THREADS))


def test_first_calls_of_one_program(device: str) -> None:
    """All threads meet the same signature for the first time at once."""
    for size in range(201, 207):

        def job(number: int, size: int = size) -> None:
            x = torch.arange(float(size), device=device) + number
            assert torch.equal((x.sin() * 0 + x).cpu(), torch.arange(float(size)) + number)

        together(*numbered(job, THREADS))


def test_programs_are_forgotten_while_they_run(device: str) -> None:
    x = torch.arange(4.0, device=device)

    def job(number: int) -> None:
        for i in range(ROUNDS):
            if number == 0 and i % 10 == 0:
                _C.clear_programs()
            assert ((x + i) * 2).tolist() == [2 * (j + i) for j in range(4)]

    together(*numbered(job, THREADS))


def step(device: str, seed: int) -> list[torch.Tensor]:
    """The gradients of a small network."""
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(*shape, generator=generator) for shape in ((5, 8), (8, 3))]
    leaves = [weight.to(device).requires_grad_() for weight in weights]
    x = torch.randn(4, 5, generator=generator).to(device)
    ((x @ leaves[0]).tanh() @ leaves[1]).square().mean().backward()
    return [leaf.grad.cpu() for leaf in leaves if leaf.grad is not None]


def test_backward_in_every_thread(device: str) -> None:
    expected = [step("cpu", seed) for seed in range(THREADS)]

    def job(number: int) -> None:
        for _ in range(ROUNDS // 4):
            torch.testing.assert_close(step(device, number), expected[number], rtol=1e-5, atol=1e-6)

    together(*numbered(job, THREADS))


def test_backward_into_shared_leaves(device: str) -> None:
    leaf = torch.ones(3, device=device, requires_grad=True)

    def job(number: int) -> None:
        for i in range(ROUNDS // 2):
            (leaf * (number + i)).sum().backward()

    together(*numbered(job, THREADS))
    expected = sum(number + i for number in range(THREADS) for i in range(ROUNDS // 2))
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [float(expected)] * 3


def test_python_in_backward(device: str) -> None:
    """Hooks run on the engine's thread, which takes the GIL for them and lets it go again."""

    def job(number: int) -> None:
        for i in range(ROUNDS // 4):
            x = torch.full((3,), float(i), device=device, requires_grad=True)
            y = x * 2
            y.register_hook(lambda grad: grad * number)
            (y * x.detach()).sum().backward()
            assert x.grad is not None
            assert x.grad.tolist() == [2.0 * i * number] * 3

    together(*numbered(job, THREADS))


def test_the_engine_frees_what_a_graph_holds(device: str) -> None:
    """Saved tensors die on the engine's thread, which has no GIL then: what they held must be given back."""

    def job(number: int) -> None:
        for _ in range(ROUNDS // 4):
            x = torch.ones(100, 10, device=device, requires_grad=True)
            y = x
            for _ in range(5):
                y = y.sin() * y
            loss = y.sum()
            del y
            loss.backward()

    gc.collect()
    torch.tpu.empty_cache()
    before = torch.tpu.memory_allocated()
    together(*numbered(job, THREADS))
    gc.collect()
    torch.tpu.empty_cache()
    assert torch.tpu.memory_allocated() == before


def test_tensors_die_in_other_threads(device: str) -> None:
    before = torch.tpu.memory_allocated()
    handed: list[torch.Tensor] = []

    def job(number: int) -> None:
        for i in range(2 * ROUNDS):
            if number % 2:
                handed.append(torch.full((8,), float(i), device=device).neg())
            elif handed:
                assert handed.pop().max().item() <= 0

    together(*numbered(job, THREADS))
    handed.clear()
    torch.tpu.empty_cache()
    assert torch.tpu.memory_allocated() == before


def test_threads_draw_different_numbers(device: str, seed: int) -> None:
    drawn: list[tuple[float, ...]] = []

    def job(number: int) -> None:
        for _ in range(ROUNDS // 2):
            drawn.append(tuple(torch.rand(4, device=device).tolist()))

    together(*numbered(job, THREADS))
    assert len(set(drawn)) == THREADS * (ROUNDS // 2)


def test_each_thread_has_its_own_grad_mode_and_device(device: str) -> None:
    x = torch.ones(2, device=device, requires_grad=True)

    def job(number: int) -> None:
        with torch.set_grad_enabled(number % 2 == 0):
            for _ in range(ROUNDS):
                assert (x + 1).requires_grad == (number % 2 == 0)
                assert torch.tpu.current_device() == 0

    together(*numbered(job, THREADS))


def test_errors_stay_in_their_thread(device: str) -> None:
    a, b = torch.ones(2, 3, device=device), torch.ones(4, 5, device=device)

    def job(number: int) -> None:
        for i in range(ROUNDS // 4):
            if number % 2:
                with pytest.raises(RuntimeError, match=r"shapes|size"):
                    a @ b
            else:
                assert (a * i).sum().item() == 6 * i

    together(*numbered(job, THREADS))
