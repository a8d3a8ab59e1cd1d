"""Saving, loading, pickling and copying; files must load where this package is not."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch

from tests.device.process import run

DTYPES = [
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.float8_e4m3fn,
]


def _through_file(value, **options):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **options)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_round_trip(dtype):
    x = torch.arange(6).reshape(2, 3).to(dtype)
    loaded = _through_file(x.to("tpu"))
    assert loaded.device == torch.device("tpu:0") and loaded.dtype is dtype
    assert torch.equal(loaded.cpu().view(torch.uint8), x.view(torch.uint8))


@pytest.mark.parametrize("where", ["cpu", "tpu", "tpu:0", torch.device("tpu"), {"tpu:0": "cpu"}, {"cpu": "tpu:0"}])
def test_map_location(where):
    target = next(iter(where.values())) if isinstance(where, dict) else where
    for source in ("cpu", "tpu"):
        loaded = _through_file(torch.arange(3).to(source), map_location=where)
        expected = source if isinstance(where, dict) and not next(iter(where)).startswith(source) else target
        assert loaded.device.type == torch.device(expected).type
        assert loaded.tolist() == [0, 1, 2]


def test_a_view_keeps_strides_and_offset():
    x = torch.arange(12, device="tpu").reshape(3, 4)
    loaded = _through_file(x.t()[1:, 1:])
    assert loaded.stride() == (1, 4) and loaded.storage_offset() == 5
    assert loaded.tolist() == [[5, 9], [6, 10], [7, 11]]


def test_sharing_survives():
    t1 = torch.ones(4, device="tpu")
    t2 = t1.detach()
    t2.add_(t2)
    a, b = _through_file([t1, t2])
    assert a.tolist() == b.tolist() == [2, 2, 2, 2]
    a[0] = 9
    assert b[0].item() == 9


def test_an_index_that_does_not_exist_here():
    file = io.BytesIO()
    torch.save(torch.ones(2, device="tpu"), file)
    data = file.getvalue().replace(b"tpu:0", b"tpu:7")
    with pytest.raises(RuntimeError, match="device_count"):
        torch.load(io.BytesIO(data))


def test_load_without_this_package(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).to("tpu")
    expected = model.state_dict()["0.weight"].tolist()
    torch.save({"model": model.state_dict(), "step": torch.ones((), device="tpu")}, tmp_path / "model.pt")
    code = f"""
        import sys, torch
        loaded = torch.load({str(tmp_path / "model.pt")!r}, map_location="cpu", weights_only=True)
        assert "torus" not in sys.modules and not hasattr(torch, "tpu")
        print(loaded["model"]["0.weight"].tolist())
    """
    assert run(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == str(expected)


def test_state_dict_across_devices():
    model, other = (torch.nn.Linear(3, 3) for _ in range(2))
    other.to("tpu").load_state_dict(model.state_dict())
    assert torch.equal(other.weight.cpu(), model.weight)
    model.load_state_dict(other.state_dict())


def test_optimizer_state():
    weight = torch.nn.Parameter(torch.ones(3, device="tpu"))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    loaded = _through_file(optimizer.state_dict(), map_location="cpu")
    again = torch.optim.AdamW([torch.nn.Parameter(torch.ones(3, device="tpu"))])
    again.load_state_dict(loaded)
    assert next(iter(again.state.values()))["exp_avg"].is_tpu


def test_pickle():
    x = torch.randn(3, 2, device="tpu", requires_grad=True)
    loaded = pickle.loads(pickle.dumps(x))
    assert loaded.is_tpu and loaded.requires_grad and torch.equal(loaded.cpu(), x.cpu())
    parameter = pickle.loads(pickle.dumps(torch.nn.Parameter(torch.ones(2, device="tpu"))))
    assert isinstance(parameter, torch.nn.Parameter) and parameter.tolist() == [1, 1]
    module = torch.nn.LSTM(2, 3).to("tpu")
    assert torch.equal(pickle.loads(pickle.dumps(module)).weight_hh_l0.cpu(), module.weight_hh_l0.cpu())


def test_deepcopy():
    x = torch.ones(4, device="tpu")
    pair = copy.deepcopy({"whole": x, "part": x[1:3]})
    pair["whole"][1] = 5
    assert pair["part"].tolist() == [5, 1]
    assert x.tolist() == [1, 1, 1, 1]


def test_deepcopy_of_a_module_with_ties():
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)).to("tpu")
    module[1].weight = module[0].weight
    copied = copy.deepcopy(module)
    assert copied[0].weight is copied[1].weight and copied[0].weight is not module[0].weight
    with torch.no_grad():
        copied[0].weight.zero_()
    assert module[0].weight.count_nonzero() > 0


def test_ties_and_identity_survive_moving():
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    module[1].weight = module[0].weight
    parameters = list(module.parameters())
    module.to("tpu")
    assert all(a is b for a, b in zip(parameters, module.parameters(), strict=True))
    assert module[0].weight is module[1].weight and module[0].weight.is_tpu
    module.cpu()
    assert module[0].weight is module[1].weight and not module[0].weight.is_tpu


def test_storage_moves():
    storage = torch.arange(4, dtype=torch.uint8).untyped_storage()
    there = storage.to(device=torch.device("tpu:0"))
    assert there.device == torch.device("tpu:0") and there.tpu().nbytes() == 4
    assert there.cpu().tolist() == [0, 1, 2, 3]


def test_rng_state_is_an_ordinary_tensor():
    state = torch.tpu.get_rng_state()
    assert torch.equal(_through_file(state), state)
