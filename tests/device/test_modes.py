from __future__ import annotations

import threading

import pytest
import torch
from torch.tpu import EagerMode

from tests.device.process import run, run_unchecked
from torus import _C


@pytest.fixture(autouse=True)
def _restored():
    mode, fusing = torch.tpu.eager_mode, torch.tpu.fusing
    yield
    _C.flush(False)
    torch.tpu.eager_mode, torch.tpu.fusing = mode, fusing


def pending(tensor: torch.Tensor) -> bool:
    return _C.pending_ops(tensor) is not None


def test_strict_is_the_mode_at_first():
    assert torch.tpu.eager_mode is EagerMode.DEFER_NEVER
    assert torch.tpu.fusing == "background"
    assert not pending(torch.ones(2, device="tpu") + 1)


@pytest.mark.parametrize("mode", EagerMode)
def test_a_mode_is_chosen_by_property(mode):
    torch.tpu.eager_mode = mode
    assert torch.tpu.eager_mode is mode
    assert pending(torch.ones(2, device="tpu") + 1) == (mode is EagerMode.DEFER_AND_FUSE)
    assert _C.launch_blocking() == (mode is EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING)


@pytest.mark.parametrize("mode", EagerMode)
def test_a_mode_is_chosen_for_a_block(mode):
    with torch.tpu.set_eager_mode(mode):
        assert torch.tpu.eager_mode is mode
        with pytest.raises(KeyError), torch.tpu.set_eager_mode(EagerMode.DEFER_AND_FUSE):
            raise KeyError
        assert torch.tpu.eager_mode is mode
    assert torch.tpu.eager_mode is EagerMode.DEFER_NEVER


def test_a_mode_is_a_mode():
    with pytest.raises(TypeError, match="EagerMode"):
        torch.tpu.eager_mode = "strict"
    with pytest.raises(TypeError, match="EagerMode"), torch.tpu.set_eager_mode("defer_and_fuse"):
        pass
    assert torch.tpu.eager_mode is EagerMode.DEFER_NEVER


@pytest.mark.parametrize("how", ["never", "background", "foreground"])
def test_fusing_is_chosen_by_property(how):
    torch.tpu.fusing = how
    assert torch.tpu.fusing == how


def test_fusing_is_one_of_three():
    with pytest.raises(ValueError, match="fusing is one of 'never', 'background', 'foreground', not 'sometimes'"):
        torch.tpu.fusing = "sometimes"
    assert torch.tpu.fusing == "background"


def test_what_is_recorded_stays_recorded_when_the_mode_changes():
    with torch.tpu.set_eager_mode(EagerMode.DEFER_AND_FUSE):
        x = torch.ones(2, device="tpu") + 1
    assert pending(x)
    y = x * 3  # runs at once, and what it needs before it
    assert not pending(x) and not pending(y)
    with torch.tpu.set_eager_mode(EagerMode.DEFER_AND_FUSE):
        z = y * 2
        assert pending(z)
    assert z.tolist() == [12.0, 12.0]


def test_writes_keep_their_order_over_changes_of_mode():
    x, on_host = torch.zeros(3, 4, device="tpu"), torch.zeros(3, 4)
    modes = [EagerMode.DEFER_AND_FUSE, EagerMode.DEFER_NEVER, EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING]
    for i in range(12):
        with torch.tpu.set_eager_mode(modes[i % 3]):
            for t in (x, on_host):
                t[i % 3].add_(i)
                t.t()[i % 4].mul_(2)
    assert torch.equal(x.cpu(), on_host)


def test_backward_over_a_change_of_mode():
    for first, second in [
        (EagerMode.DEFER_AND_FUSE, EagerMode.DEFER_NEVER),
        (EagerMode.DEFER_NEVER, EagerMode.DEFER_AND_FUSE),
    ]:
        torch.tpu.eager_mode = first
        x = torch.full((3,), 2.0, device="tpu", requires_grad=True)
        loss = (x**3).sum()
        torch.tpu.eager_mode = second
        loss.backward()
        assert pending(x.grad) == (second is EagerMode.DEFER_AND_FUSE)
        torch.tpu.eager_mode = first
        assert x.grad.mul(2).tolist() == [24.0] * 3


def test_the_mode_is_that_of_the_process():
    """Another thread chooses the mode; what this one recorded stays, and its next op runs at once."""
    torch.tpu.eager_mode = EagerMode.DEFER_AND_FUSE
    x = torch.ones(2, device="tpu") + 1

    def choose() -> None:
        torch.tpu.eager_mode = EagerMode.DEFER_NEVER

    thread = threading.Thread(target=choose)
    thread.start()
    thread.join()
    assert torch.tpu.eager_mode is EagerMode.DEFER_NEVER and pending(x)
    assert not pending(x + 1) and x.tolist() == [2.0, 2.0]


def test_the_mode_changes_while_another_thread_works():
    errors: list[BaseException] = []
    stop = threading.Event()

    def work() -> None:
        try:
            for i in range(200):
                x = torch.zeros(4, device="tpu")
                for j in range(5):
                    x = x + j * i
                assert x.tolist() == [10.0 * i] * 4
        except BaseException as error:
            errors.append(error)
        stop.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not stop.is_set():
        for mode in EagerMode:
            torch.tpu.eager_mode = mode
            assert (torch.ones(2, device="tpu") + 1).sum().item() == 4.0
    thread.join()
    assert errors == []


def test_the_blocking_mode_waits_for_what_was_recorded():
    with torch.tpu.set_eager_mode(EagerMode.DEFER_AND_FUSE):
        x = torch.ones(2, device="tpu") + 1
    with torch.tpu.set_eager_mode(EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING):
        assert (x + 1).tolist() == [3.0, 3.0]


ASK = "import torch, torus; print(torch.tpu.eager_mode.name, torch.tpu.fusing, torch.tpu.is_initialized())"


@pytest.mark.slow
def test_the_environment_chooses():
    assert run(ASK, TORCH_TPU_DEFER_AND_FUSE="1", TORUS_FUSING="foreground") == "DEFER_AND_FUSE foreground False"
    assert run(ASK, TORCH_TPU_LAUNCH_BLOCKING="1") == "DEFER_NEVER_AND_LAUNCH_BLOCKING background False"


@pytest.mark.slow
def test_a_bad_choice_in_the_environment_warns():
    result = run_unchecked(ASK, TORCH_TPU_DEFER_AND_FUSE="perhaps", TORUS_FUSING="sometimes")
    assert result.stdout.strip() == "DEFER_NEVER background False"
    assert "TORCH_TPU_DEFER_AND_FUSE='perhaps' is not understood" in result.stderr
    assert "TORUS_FUSING='sometimes' is not understood" in result.stderr
