"""In-place and out= forms: what they write, what they bump, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch


def pair(x: torch.Tensor, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    return x, x.to(device)


def agree(run: Callable[[str], torch.Tensor], device: str) -> None:
    """`run` gives the same on both devices: the same values, dtype and metadata."""
    expected, actual = run("cpu"), run(device)
    assert actual.device.type == device
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0)
    assert actual.stride() == expected.stride()
    assert actual._version == expected._version


def ramp(device: str, *sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.arange(torch.Size(sizes).numel()).reshape(sizes).to(dtype).clone().to(device)


WRITES: dict[str, Callable[[torch.Tensor], Any]] = {
    "add_ number": lambda x: x.add_(2),
    "add_ alpha": lambda x: x.add_(x.clone(), alpha=2),
    "add_ to itself": lambda x: x.add_(x),
    "iadd": lambda x: x.__iadd__(1),
    "mul_ row": lambda x: x.mul_(x[0].clone()),
    "clamp_": lambda x: x.clamp_(2, 5),
    "copy_ broadcast": lambda x: x.copy_(x[:1].clone()),
    "copy_ other dtype": lambda x: x.copy_(torch.ones_like(x, dtype=torch.int32)),
    "copy_ from the host": lambda x: x.copy_(torch.arange(4)),
    "fill_ tensor": lambda x: x.fill_(x[0, 1]),
    "fill_diagonal_": lambda x: x.fill_diagonal_(9),
    "index int": lambda x: x.__setitem__(1, 7),
    "index slice": lambda x: x.__setitem__((slice(None), slice(0, None, 2)), 2),
    "index tensor": lambda x: x.__setitem__(torch.tensor([2, 0]).to(x.device), x[:2].clone()),
    "index host tensor": lambda x: x.__setitem__(torch.tensor([2, 0]), 5),
    "index mask": lambda x: x.__setitem__(x > 3, -1),
    "index ellipsis": lambda x: x.__setitem__((..., -1), x[..., 0].clone()),
    "index_add_": lambda x: x.index_add_(0, torch.tensor([0, 0]).to(x.device), x[:2].clone()),
    "index_copy_": lambda x: x.index_copy_(1, torch.tensor([3, 0]).to(x.device), x[:, :2].clone()),
    "index_fill_": lambda x: x.index_fill_(1, torch.tensor([1, -1]).to(x.device), 7),
    "masked_fill_": lambda x: x.masked_fill_(x > 3, 0),
    "neg_": lambda x: x.neg_(),
    "scatter_": lambda x: x.scatter_(1, torch.zeros(3, 1, dtype=torch.long).to(x.device), 5),
    "sub_ column": lambda x: x.sub_(x[:, :1].clone()),
    "zero_": lambda x: x.zero_(),
}
TARGETS: dict[str, Callable[[str], torch.Tensor]] = {
    "whole": lambda d: ramp(d, 3, 4),
    "transposed": lambda d: ramp(d, 4, 3).t(),
    "stepped": lambda d: ramp(d, 6, 8)[1::2, ::2],
    "int64": lambda d: ramp(d, 5, 4, dtype=torch.int64)[2:],
    "bfloat16": lambda d: ramp(d, 2, 3, 4, dtype=torch.bfloat16)[1],
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("write", WRITES)
def test_write_reaches_every_alias(write: str, target: str, device: str) -> None:
    def run(where: str) -> torch.Tensor:
        x = TARGETS[target](where)
        base = x if x._base is None else x._base
        WRITES[write](x)
        return base

    agree(run, device)


def test_version_counters_are_shared(device: str) -> None:
    x = torch.zeros(2, 3).to(device)
    view, detached, data = x.t(), x.detach(), x.data
    view.add_(1)
    assert (x._version, view._version, detached._version, data._version) == (1, 1, 1, 0)
    data.add_(1)
    assert x._version == 1
    assert torch.equal(x.cpu(), torch.full((2, 3), 2.0))


def test_write_to_a_slice_of_ones(device: str) -> None:
    d = torch.ones(10, 4, device=device)
    d[:, 0::2] = 2
    assert d.cpu().tolist() == [[2, 1, 2, 1]] * 10


def test_copy_to_a_corner(device: str) -> None:
    a = torch.arange(27.0).reshape(3, 3, 3)
    b = torch.zeros(4, 4, 4, device=device)
    b[:3, :3, :3].copy_(a.to(device))
    expected = torch.zeros(4, 4, 4)
    expected[:3, :3, :3] = a
    assert torch.equal(b.cpu(), expected)


def test_out_into_a_view(device: str) -> None:
    x, a = torch.zeros(3, 4, device=device), torch.arange(4.0).to(device)
    result = torch.add(a, a, out=x[1])
    assert x.cpu().tolist() == [[0] * 4, [0, 2, 4, 6], [0] * 4]
    assert result._base is x
    assert x._version == 1


def test_index_copy_with_a_narrowed_permutation(device: str) -> None:
    def run(where: str) -> torch.Tensor:
        destination, source = torch.zeros(5, 3, device=where), ramp(where, 3, 3)
        index = torch.tensor([4, 1, 3, 0, 2]).to(where).narrow(0, 1, 3)
        return destination.index_copy_(0, index, source)

    agree(run, device)


OUTS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "add": lambda x, out: torch.add(x, 1, out=out),
    "cat": lambda x, out: torch.cat((x, x), out=out),
    "matmul": lambda x, out: torch.matmul(x, x.t(), out=out),
    "sum": lambda x, out: torch.sum(x, 1, out=out),
    "index_select": lambda x, out: torch.index_select(x, 0, torch.tensor([1, 0]).to(x.device), out=out),
    "transposed": lambda x, out: torch.mul(x.t(), 2, out=out),
}


@pytest.mark.parametrize("start", [(0,), (3, 4), (4, 3)], ids=str)
@pytest.mark.parametrize("name", OUTS)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out_is_resized(name: str, start: tuple[int, ...], device: str) -> None:
    def run(where: str) -> torch.Tensor:
        out = torch.zeros(start, device=where)
        assert OUTS[name](ramp(where, 3, 4), out) is out
        return out

    agree(run, device)


def test_out_with_resize_warns_when_it_held_elements(device: str) -> None:
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        torch.add(torch.ones(3).to(device), 1, out=torch.zeros(2, device=device))


def test_out_of_a_wider_dtype_is_cast(device: str) -> None:
    out = torch.zeros(3, dtype=torch.float64, device=device)
    torch.add(torch.ones(3).to(device), 1, out=out)
    assert out.cpu().tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    "write",
    [
        lambda x: torch.ones_like(x, dtype=torch.int64).mul_(1.5),
        lambda x: torch.ones_like(x, dtype=torch.bool).mul_(2),
        lambda x: torch.ones_like(x, dtype=torch.int64).add_(x),
        lambda x: x.mul_(1j),
        lambda x: torch.add(x, 1, out=torch.zeros_like(x, dtype=torch.int64)),
    ],
    ids=["int float", "bool int", "int tensor", "float complex", "out"],
)
def test_result_that_does_not_fit_raises(write: Callable[[torch.Tensor], Any], device: str) -> None:
    for x in pair(torch.ones(3), device):
        with pytest.raises(RuntimeError, match="can't be cast"):
            write(x)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x[0].expand(3, 4).add_(1),
        lambda x: x[0].expand(3, 4).mul_(x),
        lambda x: x[0].expand(3, 4).copy_(x),
        lambda x: torch.add(x, 1, out=x[0].expand(3, 4)),
    ],
    ids=["number", "tensor", "copy", "out"],
)
def test_write_to_a_tensor_that_overlaps_itself_raises(write: Callable[[torch.Tensor], Any], device: str) -> None:
    for x in pair(torch.ones(3, 4), device):
        with pytest.raises(
            RuntimeError, match="more than one element of the written-to tensor refers to a single memory"
        ):
            write(x)
        assert x._version == 0


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x[:-1].add_(x[1:]),
        lambda x: x[1:].copy_(x[:-1]),
        lambda x: x.view(16)[:8].mul_(x.view(16)[4:12]),
        lambda x: torch.add(x[:-1], 1, out=x[1:]),
        lambda x: x.add_(x.t()),
    ],
    ids=["shifted", "copy", "halves", "out", "transposed"],
)
def test_source_that_overlaps_the_target_raises(write: Callable[[torch.Tensor], Any], device: str) -> None:
    for x in pair(torch.ones(4, 4), device):
        with pytest.raises(
            RuntimeError, match="some elements of the input tensor and the written-to tensor refer to a single"
        ):
            write(x)


def test_fill_of_an_expanded_tensor_is_allowed(device: str) -> None:
    x = torch.zeros(3, device=device)
    x.expand(2, 3).fill_(4)
    x[:1].expand(5).zero_()
    assert x.cpu().tolist() == [0, 4, 4]


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.t_(),
        lambda x: x.transpose_(0, 1),
        lambda x: x.unsqueeze_(-1),
        lambda x: x.unsqueeze_(0).squeeze_(),
        lambda x: x.as_strided_((2, 2), (2, 1), 1),
        lambda x: x.swapaxes_(0, 1),
        lambda x: x.resize_(2, 2),
        lambda x: x.resize_(3, 4, memory_format=torch.contiguous_format),
        lambda x: x.set_(x[1:]),
        lambda x: x.set_(x.untyped_storage(), 1, (2, 2), (3, 2)),
        lambda x: x.set_(),
    ],
    ids=[
        "t_",
        "transpose_",
        "unsqueeze_",
        "squeeze_",
        "as_strided_",
        "swapaxes_",
        "shrink",
        "same",
        "set_",
        "set_ storage",
        "set_ nothing",
    ],
)
def test_metadata_changes_in_place(change: Callable[[torch.Tensor], Any], device: str) -> None:
    def run(where: str) -> torch.Tensor:
        x = ramp(where, 3, 4)
        assert change(x) is x
        return x

    agree(run, device)


def test_resize_grows_the_storage_and_keeps_the_elements(device: str) -> None:
    x = ramp(device, 3)
    alias = x.detach()
    x.resize_(2, 3)
    assert x.untyped_storage().nbytes() == 24
    assert x.cpu()[0].tolist() == [0, 1, 2]
    x[0].add_(1)
    assert alias.cpu().tolist() == [1, 2, 3]


def test_untyped_storage_resize(device: str) -> None:
    x = ramp(device, 4)
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().nbytes() == 0
    x.untyped_storage().resize_(16)
    x.fill_(3)
    assert x.cpu().tolist() == [3, 3, 3, 3]


def test_set_shares_the_storage(device: str) -> None:
    x, y = torch.zeros(2, device=device), ramp(device, 6)
    x.set_(y[2:])
    x.fill_(9)
    assert y.cpu().tolist() == [0, 1, 9, 9, 9, 9]


def test_new_numbers_compile_nothing(device: str) -> None:
    x = torch.zeros(4, device=device)
    x.add_(0.5).mul_(2.5).fill_(1.5).clamp_(0.25, 7.5)
    x[1] = 3
    torch.tpu.reset_counters()
    for i in range(20):
        x.add_(i / 7).mul_(i / 3).fill_(i / 9).clamp_(i / 5, i / 2)
        x[1] = i
    assert torch.tpu.counters()["compiles"] == 0


def test_in_place_loop_runs_one_program_a_step(device: str) -> None:
    x = ramp(device, 2, 3)
    for i in range(3):
        x[:, 1:].add_(i)
    torch.tpu.reset_counters()
    for i in range(10):
        x[:, 1:].add_(i)
    assert torch.tpu.counters()["programs"] == 10
    assert torch.tpu.counters()["compiles"] == 0


def test_failed_write_changes_nothing(device: str) -> None:
    x = ramp(device, 3)
    with pytest.raises(RuntimeError):
        x.add_(torch.ones(2, 3).to(device))
    assert x.cpu().tolist() == [0, 1, 2]
    assert x._version == 0


def test_tensors_on_two_devices_raise(device: str) -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(3).to(device).add_(torch.ones(3))


def test_number_tensor_from_the_host_is_accepted(device: str) -> None:
    x = torch.ones(3, device=device)
    x.add_(torch.tensor(2.5))
    assert x.cpu().tolist() == [3.5, 3.5, 3.5]


def test_copy_between_views_of_the_same_data_does_nothing(device: str) -> None:
    x = ramp(device, 4).expand(2, 4)
    x.copy_(x[...])
    assert x.cpu()[1].tolist() == [0, 1, 2, 3]


def test_resize_to_the_same_sizes_leaves_the_storage_alone(device: str) -> None:
    x = ramp(device, 4)
    view = x.unfold(0, 2, 1)[1:]
    view.resize_(2, 2)
    assert x.untyped_storage().nbytes() == 16
    assert view.stride() == (1, 1)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.fill_(1j),
        lambda x: x.masked_fill_(x > 1, 1j),
        lambda x: x.scatter_(0, torch.tensor([0]).to(x.device), 1j),
        lambda x: x.index_fill_(0, torch.tensor([0]).to(x.device), 1j),
        lambda x: x.__setitem__(0, 1j),
    ],
    ids=["fill_", "masked_fill_", "scatter_", "index_fill_", "setitem"],
)
def test_complex_number_does_not_fit_a_real_tensor(write: Callable[[torch.Tensor], Any], device: str) -> None:
    for x in pair(torch.ones(3), device):
        with pytest.raises(RuntimeError, match=r"value cannot be converted|Converting complex Scalar"):
            write(x)


def test_bools_are_not_subtracted(device: str) -> None:
    mask = torch.tensor([True, False]).to(device)
    for subtract in (
        lambda: mask - 1,
        lambda: 1 - mask,
        lambda: mask - mask,
        lambda: torch.ones(2, device=device) - mask,
    ):
        with pytest.raises(RuntimeError, match=r"Subtraction, the `-` operator, with (a|two) bool tensor"):
            subtract()


def test_index_is_not_looked_at_where_rows_are_empty(device: str) -> None:
    x, index = torch.zeros(1, 0, device=device), torch.tensor([1, 0]).to(device)
    assert x[index].shape == (2, 0)
    x.index_fill_(0, index, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_strides_of_an_elementwise_result(dtype: torch.dtype, device: str) -> None:
    """The CPU makes dense tensors of mixed dtypes first, which decides between strides where several would do."""

    def run(where: str) -> torch.Tensor:
        permuted = ramp(where, 2, 3, 2, dtype=dtype).permute(1, 0, 2)
        return torch.ones((), dtype=torch.float32, device=where).expand(3, 2, 2) * permuted

    def run_uniform(where: str) -> torch.Tensor:
        permuted = ramp(where, 2, 3, 2, dtype=dtype).permute(1, 0, 2)
        return torch.ones((), dtype=dtype, device=where).expand(3, 2, 2) * permuted

    def run_ambiguous(where: str) -> torch.Tensor:
        repeated = ramp(where, 3, 4, dtype=dtype).expand(2, -1, -1).permute(2, 0, 1)[1:]
        return repeated + ramp(where, 3, 2).t()

    def run_broadcast(where: str) -> torch.Tensor:
        x = ramp(where, 2, 2, dtype=dtype)
        return x * x.expand(2, -1, -1).permute(2, 0, 1)[1:]

    agree(run, device)
    agree(run_uniform, device)
    agree(run_ambiguous, device)
    agree(run_broadcast, device)


@pytest.mark.parametrize("op", [torch.sub, torch.rsub, torch.eq, torch.atan2], ids=lambda op: op.__name__)
def test_strides_of_a_result_are_those_of_the_cpu(op: Callable[..., torch.Tensor], device: str) -> None:
    """Where several would do: the first dimension, of size 1, is broadcast."""

    def run(where: str) -> torch.Tensor:
        x = ramp(where, 2, 2)
        return op(x, x.expand(2, -1, -1).permute(2, 0, 1)[1:].to(torch.float64))

    agree(run, device)
