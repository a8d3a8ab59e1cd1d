"""Where recorded ops run: what needs a value, and nothing else."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from tests.device.process import run
from tests.eager.fusing import Counts, pending, running, settled


@pytest.fixture(autouse=True)
def _recording() -> Iterator[None]:
    with running():
        yield


def save(x: Tensor) -> object:
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file).tolist()


def control(x: Tensor) -> object:
    return [3.0, 5.0] if x.sum() > 7 else [0.0]


def in_numpy(x: Tensor) -> object:
    return x.cpu().numpy().tolist()


def compare(x: Tensor) -> object:
    return x.tolist() if torch.equal(x, x + 0) and torch.allclose(x, x) else None


READS: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: [x[0].item(), x[1].item()],
    "tolist": lambda x: x.tolist(),
    "cpu": in_numpy,
    "save": save,
    "if": control,
    "float": lambda x: [float(x[0]), float(x[1])],
    "int": lambda x: [float(int(x[0])), float(int(x[1]))],
    "unpack": lambda x: [t.item() for t in x],
    "equal": compare,
    "nonzero": lambda x: x[x.nonzero().flatten()].tolist(),
    "mask": lambda x: x[x > 0].tolist(),
    "unique": lambda x: x.unique().tolist(),
    "pickle": lambda x: pickle.loads(pickle.dumps(x)).tolist(),
    "deepcopy": lambda x: copy.deepcopy(x).tolist(),
    "fallback": lambda x: (torch._dirichlet_grad(*[torch.ones(2, 2, device="tpu")] * 3), x.tolist())[1],
    "cpu copy_": lambda x: torch.zeros(2).copy_(x).tolist(),
    "to": lambda x: x.to("cpu", torch.float64).tolist(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.filterwarnings("ignore:aten.._dirichlet_grad")
def test_a_read_runs_what_is_recorded(read: Callable[[Tensor], object], device: str) -> None:
    (x,) = settled(torch.ones(2, device=device))
    y = x * torch.tensor([3.0, 5.0], device=device)
    assert pending(y)
    counts = Counts()
    assert read(y) == [3.0, 5.0]
    assert counts.flushes >= 1 and not pending(y)


def test_printing(device: str) -> None:
    y = torch.ones(2, device=device) * 3
    assert "[3., 3.]" in repr(y) and f"{y[0]:.1f}" == "3.0"


def test_synchronize_runs_everything(device: str) -> None:
    x = torch.ones(2, device=device) + 1
    torch.tpu.synchronize()
    assert not pending(x)
    x = x + 1
    torch.accelerator.synchronize()
    assert not pending(x)
    x = x + 1
    torch.tpu.current_stream().synchronize()
    assert not pending(x) and x.tolist() == [4.0, 4.0]


def test_recording_an_event_runs_everything(device: str) -> None:
    x = torch.ones(2, device=device) + 1
    event = torch.tpu.Event(enable_timing=True)
    event.record()
    assert not pending(x)
    event.synchronize()
    assert event.query()


def test_asking_a_stream_runs_everything(device: str) -> None:
    x = torch.ones(2, device=device) + 1
    torch.tpu.current_stream().query()
    assert not pending(x)


METADATA: dict[str, Callable[[Tensor], object]] = {
    "shape": lambda x: (x.shape, x.stride(), x.dtype, x.device, x.numel(), len(x)),
    "storage": lambda x: (x.data_ptr(), x.untyped_storage().nbytes(), x.storage_offset()),
    "grad": lambda x: (x.requires_grad, x.grad_fn, x.is_leaf, x._version),
    "view": lambda x: x.view(1, 2).t(),
    "detach": lambda x: x.detach(),
    "clone": lambda x: x.clone(),
    "result_type": lambda x: torch.result_type(x, 1.5),
    "is_contiguous": lambda x: (x.is_contiguous(), x.is_floating_point(), x.is_complex()),
    "counters": lambda x: torch.tpu.counters(),
    "memory": lambda x: torch.tpu.memory_allocated(),
    "parameter": lambda x: torch.nn.Parameter(x),
    "to itself": lambda x: x.to("tpu"),
    "show": lambda x: torch.tpu.show(x),
    "hash": lambda x: hash(x),
}


@pytest.mark.parametrize("ask", METADATA.values(), ids=METADATA)
def test_metadata_runs_nothing(ask: Callable[[Tensor], object], device: str) -> None:
    y = torch.ones(2, device=device) + 1
    counts = Counts()
    ask(y)
    assert counts.flushes == 0 and pending(y)


def test_only_what_is_recorded_together_runs_together(device: str) -> None:
    """Two ops of one thread are one trace; a read of the first runs both, which is what makes programs repeat."""
    (x,) = settled(torch.ones(2, device=device))
    y, z = x + 1, x * 5
    counts = Counts()
    assert y.tolist() == [2.0, 2.0] and counts.flushes == 1
    assert z.tolist() == [5.0, 5.0] and counts.flushes == 1


def test_resizing_keeps_values(device: str) -> None:
    x = torch.ones(2, device=device) * 3
    x.resize_(4)
    assert x[:2].tolist() == [3.0, 3.0]


def test_a_result_whose_size_is_a_value(device: str) -> None:
    x = torch.arange(6, device=device) % 2
    found = torch.nonzero(x)
    assert torch.arange(found.shape[0], device=device).add(1).tolist() == [1, 2, 3]


@pytest.mark.slow
def test_a_copy_to_another_device() -> None:
    code = """
        import torch, torus
        from torus import _C
        torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE
        torch.tpu.fusing = "foreground"
        x = torch.ones(3, device="tpu:0") * 2
        apart = torch.ones(3, device="tpu:1") * 7
        y = x.to("tpu:1")
        z = y + apart
        print(_C.pending_ops(x) is None, _C.pending_ops(apart) is None, z.tolist(), z.device)
        w = torch.zeros(3, device="tpu:0")
        w.copy_(z + 1)
        torch.tpu.synchronize(0)
        print(w.tolist())
        apart = apart + 1
        torch.tpu.synchronize(0)
        print(_C.pending_ops(apart) is None)
        torch.tpu.synchronize(1)
        print(_C.pending_ops(apart) is None)
        try:
            x + apart
        except RuntimeError as error:
            print("same device" in str(error))
    """
    out = run(code, TORUS_DEVICE_COUNT="2", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert out.splitlines() == [
        "True False [9.0, 9.0, 9.0] tpu:1",
        "[10.0, 10.0, 10.0]",
        "False",
        "True",
        "True",
    ]
