"""Behaviour that was reported broken in software of this kind, one row B.. each: ``pytest -k b04`` finds a row."""

from __future__ import annotations

import copy
import gc
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn, tensor
from torch.nn import functional as F

import torus  # noqa: F401  makes the device exist where the package is not installed

TPU = "tpu"
MEGABYTE = 2**20


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def compiles() -> int:
    return torch.tpu.counters()["compiles"] + torch.tpu.counters()["cache_hits"]


def resident() -> int:
    """Bytes of this process that are in memory now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def device_and_host(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    yield tuple(t.clone().to(TPU) for t in tensors)
    yield tuple(t.clone() for t in tensors)


# --- B4, B24, B27: values that change compile nothing and keep nothing


def test_b04_changing_scalars() -> None:
    x = torch.full((16,), 1.0, device=TPU)
    for i in range(200):
        x = x * (1 + i / 1e6)
    x.cpu()
    compiled, memory, live = compiles(), resident(), torch.tpu.memory_allocated()
    for i in range(100_000):
        x = x * (1 + i / 1e9)
        if i % 5_000 == 0:
            x = x.clamp(max=2.0)
    torch.tpu.synchronize()
    assert compiles() - compiled <= 1, "only clamp is new"
    assert torch.tpu.memory_allocated() == live
    assert resident() - memory < 5 * MEGABYTE
    assert x.isfinite().all()


def test_b04_changing_scalars_in_place() -> None:
    x, y = torch.zeros(16, device=TPU), torch.zeros(16)
    x.add_(0.5)
    y.add_(0.5)
    compiled, memory = compiles(), resident()
    for i in range(5_000):
        x.add_(i / 1024)
    for i in range(5_000):
        y.add_(i / 1024)
    assert compiles() == compiled
    assert resident() - memory < 5 * MEGABYTE
    assert torch.equal(x.cpu(), y)


def test_b24_changing_learning_rate() -> None:
    parameter = nn.Parameter(torch.ones(8, device=TPU))
    for form in ({"foreach": True}, {"foreach": False}, {"fused": True}):
        optimizer = torch.optim.AdamW([parameter], lr=0.1, **form)
        parameter.grad = torch.ones_like(parameter)
        for step in range(6):
            optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)
            optimizer.step()
            if step == 1:
                compiled = compiles()
        assert compiles() == compiled, form


def test_b24_scalars_that_become_equal() -> None:
    x = torch.ones(8, device=TPU)
    run_one = lambda a, b: torch.addcmul(x * a, x, x, value=b) + torch.add(x, x, alpha=b) * a  # noqa: E731
    run_one(2.0, 3.0)
    compiled = compiles()
    for a, b in [(0.5, 0.25), (0.25, 0.25), (1.0, 1.0), (0.0, 0.0), (-1.0, 2.0)]:
        assert torch.equal(run_one(a, b).cpu(), torch.full((8,), a + b + (1 + b) * a))
    assert compiles() == compiled


def test_b27_layer_wise_learning_rate_decay() -> None:
    layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3)).to(TPU)
    groups = [{"params": layer.parameters(), "lr": 0.1 * 0.5**i} for i, layer in enumerate(layers)]
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    for parameter in layers.parameters():
        parameter.grad = torch.ones_like(parameter)

    def step(i: int) -> None:
        for depth, group in enumerate(optimizer.param_groups):
            group["lr"] = 0.1 * 0.5**depth / (1 + i)
        optimizer.step()

    for i in range(20):
        step(i)
    torch.tpu.synchronize()
    compiled, memory, live = compiles(), resident(), torch.tpu.memory_allocated()
    for i in range(1_000):
        step(i)
    torch.tpu.synchronize()
    assert compiles() == compiled
    assert torch.tpu.memory_allocated() == live
    assert resident() - memory < 5 * MEGABYTE


def test_b25_offsets_compile_nothing() -> None:
    """The eager half of B25: one program for a window of one width, wherever it starts."""
    x = torch.arange(64.0, device=TPU)
    (x[3:7] * 2).cpu()
    compiled = compiles()
    for start in range(40):
        assert (x[start : start + 4] * 2).tolist() == [2.0 * (start + i) for i in range(4)]
        assert (x[start] * 2).item() == 2.0 * start or start < 1
    assert compiles() - compiled <= 1


# --- B7, B10, B16, B18: values and dtypes


def test_b07_padding_keeps_the_sign_of_zero() -> None:
    x = torch.ones(2, device=TPU)
    for value in (0.0, -0.0, 0.0):
        padded = F.pad(x, (1, 1), value=value).cpu()
        assert padded.signbit().tolist() == F.pad(x.cpu(), (1, 1), value=value).signbit().tolist()
        assert torch.full((2,), value, device=TPU).cpu().signbit().tolist() == [str(value).startswith("-")] * 2


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_b10_integer_matmul(dtype: torch.dtype) -> None:
    a, b = torch.randint(-9, 9, (3, 5)).to(dtype), torch.randint(-9, 9, (5, 4)).to(dtype)
    for x, y in ((a, b), (a[0], b), (a, b[:, 0]), (a[0], b[:, 0]), (a.expand(2, 3, 5), b.expand(2, 5, 4))):
        expected, actual = x @ y, (x.to(TPU) @ y.to(TPU)).cpu()
        assert actual.dtype == expected.dtype
        assert torch.equal(actual, expected)


def test_b10_int64_products_beyond_float64() -> None:
    a = tensor([[2**53 + 1, 3], [-(2**61), 2**40]])
    b = tensor([[1, 2**20], [1, -1]])
    assert torch.equal((a.to(TPU) @ b.to(TPU)).cpu(), a @ b)
    assert torch.equal((a.to(TPU) * 3 + (2**60 + 1)).cpu(), a * 3 + (2**60 + 1))


def test_b16_in_place_result_that_does_not_fit() -> None:
    for make in (lambda: torch.ones(2, dtype=torch.int64), lambda: torch.ones(2, dtype=torch.bool)):
        for write in (lambda t: t.mul_(1.5), lambda t: t.add_(torch.ones_like(t, dtype=torch.float32))):
            for device in ("cpu", TPU):
                t = make().to(device)
                with pytest.raises(RuntimeError, match="can't be cast"):
                    write(t)
                assert t.cpu().tolist() == make().tolist()


def test_b18_dtypes_and_roundings() -> None:
    ints, floats = tensor([1, 2]), tensor([0.5, 1.5])
    small = tensor([100, 2, 3], dtype=torch.int8)
    bytes_ = tensor([1, 0, 1], dtype=torch.uint8)
    halves = torch.linspace(-3, 3, 41, dtype=torch.bfloat16)
    cases = [
        (lambda i, f: torch.cat([i, f]), (ints, floats)),
        (lambda i, f: torch.stack([f, i.to(f.dtype)]), (ints, floats)),
        (lambda s: s.prod(), (small,)),
        (lambda s: s.sum(), (small,)),
        (lambda s: s.cumprod(0), (bytes_ * 20,)),
        (lambda s: s.cumsum(0), (bytes_,)),
        (lambda h: torch.pow(h, 3.0), (halves,)),
        (lambda h: torch.pow(h, 2), (halves,)),
        (lambda h: h * 1.1 - 0.25, (halves,)),  # no add of a number that bfloat16 lacks, see D6
        (lambda i: i / 2, (ints,)),
        (lambda i, f: i * f, (ints, floats)),
        (lambda i: i.float().mean(), (ints,)),
        (lambda s: s + 1, (small,)),
        (lambda s: s * 1.0, (small,)),
        (lambda s: torch.where(s > 2, s, 0), (small,)),
    ]
    for i, (call, args) in enumerate(cases):
        actual, expected = (call(*moved) for moved in device_and_host(*args))
        assert actual.dtype == expected.dtype, i
        assert torch.equal(actual.cpu(), expected), i


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_b18_uint8_index_is_a_mask() -> None:
    x, mask = tensor([10, 20, 30], dtype=torch.uint8), tensor([1, 0, 1], dtype=torch.uint8)
    assert x.to(TPU)[mask.to(TPU)].tolist() == [10, 30]


# --- B11: mixed precision


def test_b11_autocast_and_grad_scaler() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to(TPU)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.05), torch.amp.GradScaler(TPU)
    x = torch.randn(32, 8, device=TPU)
    y = x.sum(1, keepdim=True)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        with torch.autocast(TPU, dtype=torch.bfloat16):
            assert (x @ x.t()).dtype is torch.bfloat16
            loss = F.mse_loss(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4
    assert all(p.dtype is torch.float32 for p in model.parameters())


# --- B12, B13, B14, B15: aliasing


def test_b12_data_shares_until_it_is_replaced() -> None:
    x = torch.zeros(10, device=TPU)
    y = x.view(2, 5)
    x.data += 1
    assert y.tolist() == [[1.0] * 5] * 2
    x.data = x.data + 1
    assert y.tolist() == [[1.0] * 5] * 2
    assert x.tolist() == [2.0] * 10


def test_b13_detached_alias_through_save_and_load(tmp_path: Path) -> None:
    first = torch.arange(4.0, device=TPU, requires_grad=True)
    second = first.detach()
    second.add_(second)
    assert first.tolist() == second.tolist() == [0.0, 2.0, 4.0, 6.0]
    torch.save([first, second], tmp_path / "both.pt")
    one, two = torch.load(tmp_path / "both.pt")
    assert one.is_tpu and two.is_tpu
    with torch.no_grad():
        one.mul_(10)
    assert two.tolist() == [0.0, 20.0, 40.0, 60.0]


def test_b14_writes_through_views() -> None:
    a, b = torch.arange(27.0).reshape(3, 3, 3), torch.ones(5)
    results = []
    for a_, b_ in device_and_host(a, b):
        d = torch.ones(10, 4, device=a_.device)
        d[:, 0::2] = 2
        box = torch.zeros(4, 4, 4, device=a_.device)
        box[:3, :3, :3].copy_(a_)
        x = torch.zeros(3, 5, device=a_.device)
        torch.add(b_, b_, out=x[1])
        turned = torch.zeros(3, 3, device=a_.device)
        turned.t()[1:].copy_(a_[0, :2])
        torch.diagonal(turned).fill_(7)
        flipped = torch.zeros(6, device=a_.device)
        flipped[::2] += b_[:3]
        flipped[1::2].sub_(b_[:3], alpha=2)
        results.append([t.cpu() for t in (d, box, x, turned, flipped)])
    for actual, expected in zip(*results):
        assert torch.equal(actual, expected)


def test_b15_index_copy_by_a_narrowed_permutation() -> None:
    order, source = torch.randperm(8), torch.randn(3, 4)
    actual, expected = (
        torch.zeros(8, 4, device=s.device).index_copy_(0, o.narrow(0, 2, 3), s)
        for o, s in device_and_host(order, source)
    )
    assert torch.equal(actual.cpu(), expected)


# --- B19, B22, B23: indices


def test_b19_nonzero_decides_sizes() -> None:
    x = tensor([[1, 0, 0, 5, 0, 6]], device=TPU)
    found = torch.nonzero(x)
    assert found.tolist() == [[0, 0], [0, 3], [0, 5]]
    assert torch.zeros(found.shape[0], device=TPU).tolist() == [0.0] * 3
    assert torch.arange(found.shape[0], device=TPU).tolist() == [0, 1, 2]
    assert [t.tolist() for t in torch.nonzero(x, as_tuple=True)] == [[0, 0, 0], [0, 3, 5]]
    assert x[x > 0].tolist() == [1, 5, 6]
    assert torch.masked_select(x, x > 1).tolist() == [5, 6]


def test_b19_masked_writes() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    for x_ in (x.to(TPU), x):
        x_[x_ > 3] = -1
        x_[x_ == 0] += 10
        x_[tensor([True, False], device=x_.device)] = tensor([7.0, 8.0, 9.0], device=x_.device)
        assert x_.tolist() == [[7.0, 8.0, 9.0], [3.0, -1.0, -1.0]]


@pytest.mark.parametrize("bad", [7, -7])
def test_b22_index_out_of_range(bad: int) -> None:
    x, index = torch.randn(4, 3, device=TPU), tensor([0, bad], device=TPU)
    calls = [
        lambda: x[index],
        lambda: x.index_select(0, index),
        lambda: x.gather(0, index[:, None]),
        lambda: F.embedding(index, x),
        lambda: x.view(2, 6)[0].take(index),
        lambda: x.index_put((index,), torch.zeros(2, 3, device=TPU)),
        lambda: x.scatter(0, index[:, None], 1.0),
    ]
    for i, call in enumerate(calls):
        with pytest.raises(IndexError, match=str(bad)):
            call().cpu()
        assert x.isfinite().all(), f"the device is unusable after call {i}"


def test_b23_gather_with_int32() -> None:
    x, index = torch.randn(4, 3), tensor([[0, 1, 2], [3, 2, 1]])
    assert torch.equal(x.to(TPU).gather(0, index.to(TPU)).cpu(), x.gather(0, index))
    narrow = index.to(torch.int32)
    try:
        expected = x.gather(0, narrow)
    except RuntimeError:
        with pytest.raises((RuntimeError, IndexError), match=r"int64|int32|Int"):
            x.to(TPU).gather(0, narrow.to(TPU))
    else:
        assert torch.equal(x.to(TPU).gather(0, narrow.to(TPU)).cpu(), expected)


# --- B20, B21: random numbers


def test_b20_seeding_repeats() -> None:
    draws = []
    for _ in range(2):
        torch.manual_seed(0)
        draws.append([torch.rand(64, device=TPU), torch.randn(64, device=TPU), torch.randperm(16, device=TPU)])
    for first, second in zip(*draws):
        assert torch.equal(first.cpu(), second.cpu())
    uniform, normal, order = (t.cpu() for t in draws[0])
    assert len(uniform.unique()) == 64 and 0.2 < uniform.mean() < 0.8
    assert len(normal.unique()) == 64 and normal.std() > 0.5
    assert sorted(order.tolist()) == list(range(16))
    torch.manual_seed(1)
    assert not torch.equal(torch.rand(64, device=TPU).cpu(), uniform)


def test_b21_own_generator() -> None:
    generator = torch.Generator(TPU).manual_seed(5)
    assert generator.initial_seed() == 5
    first = torch.randn(8, device=TPU, generator=generator).cpu()
    state = generator.get_state()
    second = torch.randn(8, device=TPU, generator=generator).cpu()
    assert not torch.equal(first, second)
    generator.set_state(state)
    assert torch.equal(torch.randn(8, device=TPU, generator=generator).cpu(), second)
    other = torch.Generator(TPU)
    other.set_state(state)
    assert torch.equal(torch.randn(8, device=TPU, generator=other).cpu(), second)
    assert torch.equal(torch.randn(8, device=TPU, generator=generator.manual_seed(5)).cpu(), first)


# --- B29, B31, B32


def test_b29_tied_weights(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
            self.head.weight = self.embedding.weight

    model = Tied().to(TPU)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert model.head.weight is model.embedding.weight
    assert model.head.weight.is_tpu
    before = model.head.weight.detach().clone()
    model.head(model.embedding(tensor([1, 2], device=TPU))).sum().backward()
    optimizer.step()
    assert model.head.weight is model.embedding.weight
    assert not torch.equal(model.head.weight.cpu(), before.cpu())
    clone = copy.deepcopy(model)
    assert clone.head.weight is clone.embedding.weight
    torch.save(model.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt")
    state["head.weight"].zero_()
    assert state["embedding.weight"].abs().sum().item() == 0
    back = model.to("cpu")
    assert back.head.weight is back.embedding.weight


def test_b31_gradient_of_a_random_leaf() -> None:
    x = torch.randn(8, device=TPU, requires_grad=True)
    x.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1.0] * 8


def test_b32_float64_step_sizes() -> None:
    """As Integrated Gradients does it: float64 on the host, moved, multiplied with float32 gradients."""
    steps = torch.linspace(0, 1, 7, dtype=torch.float64)
    gradients = torch.randn(7, 3)
    expected = gradients * steps.float().view(7, 1)
    actual = gradients.to(TPU) * steps.float().view(7, 1).to(TPU)
    assert torch.equal(actual.cpu(), expected)
    wide = gradients.to(TPU) * steps.to(TPU).view(7, 1)
    assert wide.dtype is torch.float64
    assert torch.equal(wide.cpu(), gradients * steps.view(7, 1))
    assert steps.to(TPU).cpu().tolist() == steps.tolist()
