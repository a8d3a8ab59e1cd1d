"""Views: every view op shares its base's storage both ways, with PyTorch's own sizes, strides and offsets."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "alias": torch.ops.aten.alias,
    "as_strided": lambda x: x.as_strided((2, 3), (4, 2), 1),
    "as_strided overlapping": lambda x: x.as_strided((3, 4), (1, 2), 2),
    "chunk": lambda x: x.chunk(2, 1)[1],
    "detach": lambda x: x.detach(),
    "diagonal": lambda x: x.diagonal(1, 0, 1),
    "diagonal below": lambda x: x.diagonal(-1, 1, 2),
    "expand": lambda x: x[:, :1].expand(-1, 5, -1),
    "expand leading": lambda x: x.expand(2, 2, 3, 4),
    "flatten": lambda x: x.flatten(1),
    "hsplit": lambda x: x.hsplit(3)[1],
    "index int": lambda x: x[1],
    "index mixed": lambda x: x[..., None, 1::2],
    "movedim": lambda x: x.movedim(0, 2),
    "mT": lambda x: x.mT,
    "narrow": lambda x: x.narrow(2, 1, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "reshape": lambda x: x.reshape(4, 6),
    "select": lambda x: x.select(1, -1),
    "slice step": lambda x: x[:, ::2, 1:],
    "split": lambda x: x.split([1, 3], 2)[1],
    "squeeze": lambda x: x[:1].squeeze(0),
    "swapaxes": lambda x: x.swapaxes(0, 2),
    "tensor_split": lambda x: x.tensor_split(2, 2)[0],
    "transpose": lambda x: x.transpose(0, 1),
    "unbind": lambda x: x.unbind(1)[2],
    "unflatten": lambda x: x.unflatten(2, (2, 2)),
    "unfold": lambda x: x.unfold(2, 2, 1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "view": lambda x: x.view(3, 8),
    "view_as": lambda x: x.view_as(torch.empty(6, 4)),
    "views of views": lambda x: x.transpose(0, 2)[1:, ::2].diagonal(0, 0, 1)[:, None],
}


def both(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.arange(24.0).reshape(2, 3, 4)
    return x, x.to(device)


def metadata(view: torch.Tensor) -> tuple[Any, ...]:
    return (tuple(view.shape), view.stride(), view.storage_offset(), view.is_contiguous(), view._is_view(), view.dtype)


@pytest.mark.parametrize("name", VIEWS)
def test_view_has_the_metadata_and_values_of_the_cpu(name: str, device: str) -> None:
    x, y = both(device)
    expected, actual = VIEWS[name](x), VIEWS[name](y)
    assert metadata(actual) == metadata(expected)
    assert actual.data_ptr() - y.data_ptr() == expected.data_ptr() - x.data_ptr()
    assert torch.equal(actual.cpu(), expected)
    assert torch.equal((actual + 1).cpu(), expected + 1)  # read inside a program


@pytest.mark.parametrize("name", VIEWS)
def test_write_to_the_base_shows_in_the_view(name: str, device: str) -> None:
    x, y = both(device)
    expected, actual = VIEWS[name](x), VIEWS[name](y)
    for base in (x, y):
        base.mul_(10)
    assert torch.equal(actual.cpu(), expected)
    assert actual._version == expected._version == x._version


@pytest.mark.parametrize("name", VIEWS)
def test_write_to_the_view_shows_in_the_base(name: str, device: str) -> None:
    x, y = both(device)
    for base in (x, y):
        VIEWS[name](base).fill_(-1)
    assert torch.equal(y.cpu(), x)
    assert y._version == x._version == 1


@pytest.mark.parametrize("name", VIEWS)
def test_view_shares_the_storage(name: str, device: str) -> None:
    _, y = both(device)
    assert VIEWS[name](y).untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


@pytest.mark.parametrize("name", [n for n in VIEWS if "overlapping" not in n and "expand" not in n and n != "unfold"])
def test_copy_between_a_view_and_its_clone(name: str, device: str) -> None:
    x, y = both(device)
    for base in (x, y):
        view = VIEWS[name](base)
        view.copy_(view.clone().mul(3))
    assert torch.equal(y.cpu(), x)


REINTERPRETED = [
    (torch.float32, torch.int32),
    (torch.float32, torch.uint8),
    (torch.float32, torch.float64),
    (torch.float64, torch.int64),
    (torch.int64, torch.bfloat16),
    (torch.int16, torch.float16),
    (torch.bool, torch.uint8),
    (torch.complex64, torch.float32),
    (torch.complex64, torch.int64),
]


@pytest.mark.parametrize(("dtype", "other"), REINTERPRETED, ids=str)
def test_view_as_another_dtype(dtype: torch.dtype, other: torch.dtype, device: str) -> None:
    x = torch.arange(1, 9).reshape(2, 4).to(dtype)
    y = x.to(device)
    assert metadata(y.view(other)) == metadata(x.view(other))
    assert torch.equal(y.view(other).cpu().view(torch.uint8), x.view(other).view(torch.uint8))
    for base in (x, y):
        base.view(other)[1:].zero_()
    assert torch.equal(y.cpu(), x)
    assert y.dtype is dtype


def test_view_as_a_wider_dtype_needs_a_fitting_last_dimension(device: str) -> None:
    with pytest.raises(RuntimeError, match="divisible"):
        torch.zeros(3, dtype=torch.int16).to(device).view(torch.int32)


def test_complex_parts_share_storage(device: str) -> None:
    x = torch.complex(torch.arange(4.0), torch.arange(4.0) + 10)
    y = x.to(device)
    for base in (x, y):
        base.real.mul_(2)
        base.imag[1:].zero_()
        torch.view_as_real(base)[0] = 7
    assert torch.equal(y.cpu(), x)
    assert torch.equal(torch.view_as_complex(torch.view_as_real(y)).cpu(), x)


def test_conjugate_views(device: str) -> None:
    x = torch.complex(torch.arange(4.0), torch.arange(4.0) + 10)
    y = x.to(device)
    assert y.conj().is_conj()
    assert torch.equal(y.conj().cpu(), x.conj())
    assert torch.equal((y.conj() + 1j).cpu(), x.conj() + 1j)
    assert torch.equal(y.conj().imag.cpu(), x.conj().imag)
    for base in (x, y):
        base.conj().add_(2j)
    assert torch.equal(y.cpu(), x)


def test_negative_views(device: str) -> None:
    x = torch.arange(4.0)
    y = x.to(device)
    assert torch.equal((torch._neg_view(y) + 1).cpu(), torch._neg_view(x) + 1)
    for base in (x, y):
        torch._neg_view(base).add_(1)
    assert torch.equal(y.cpu(), x)


def test_new_offsets_compile_nothing(device: str) -> None:
    x = torch.arange(40.0).reshape(10, 4).to(device)
    x[0] + 1
    x[1].add_(1)
    x[2, 1:3].clone()
    torch.tpu.reset_counters()
    for i in range(10):
        x[i] + 1
        x[i].add_(1)
        x[i, 1:3].clone()
    assert torch.tpu.counters()["compiles"] == 0


def test_reshape_of_a_strided_view_copies(device: str) -> None:
    y = torch.arange(6.0).reshape(2, 3).to(device)
    copied = y.t().reshape(6)
    copied.zero_()
    assert not copied._is_view()
    assert torch.equal(y.cpu(), torch.arange(6.0).reshape(2, 3))


def test_view_of_incompatible_strides_raises(device: str) -> None:
    with pytest.raises(RuntimeError, match=r"Use \.reshape"):
        torch.zeros(2, 3).to(device).t().view(6)


def test_base_of_a_view(device: str) -> None:
    y = torch.zeros(2, 3).to(device)
    assert y.t()[1]._base is y
    assert y._base is None


def test_data_is_another_handle_on_the_same_values(device: str) -> None:
    """A view sees what is written through .data; an assignment to .data swaps the storage of one tensor only."""
    x = torch.arange(10.0).to(device)
    y = x.view(2, 5)
    x.data += 1
    assert torch.equal(y.cpu(), torch.arange(1.0, 11).view(2, 5))
    x.data = x.data + 1
    assert torch.equal(y.cpu(), torch.arange(1.0, 11).view(2, 5))
    assert torch.equal(x.cpu(), torch.arange(2.0, 12))


def test_detached_alias_survives_saving(device: str, tmp_path: Any) -> None:
    first = torch.ones(3).to(device)
    second = first.detach()
    second.add_(second)
    torch.save({"first": first, "second": second}, tmp_path / "pair.pt")
    loaded = torch.load(tmp_path / "pair.pt")
    assert loaded["first"].cpu().tolist() == loaded["second"].cpu().tolist() == [2, 2, 2]
    loaded["first"].zero_()
    assert loaded["second"].cpu().tolist() == [0, 0, 0]


def test_deepcopy_keeps_sharing(device: str) -> None:
    base = torch.arange(6.0).reshape(2, 3).to(device)
    copied = copy.deepcopy({"base": base, "row": base[1]})
    copied["base"].zero_()
    assert copied["row"].cpu().tolist() == [0, 0, 0]
    assert base.cpu()[1].tolist() == [3, 4, 5]


def test_views_of_an_unwritten_tensor(device: str) -> None:
    y = torch.empty(2, 3, device=device)
    y[0].fill_(1)
    y[1].copy_(torch.arange(3.0))
    assert y.cpu().tolist() == [[1, 1, 1], [0, 1, 2]]


def test_unsafe_parts_share_the_storage(device: str) -> None:
    """They are views that autograd does not know, as on the CPU."""
    for parts in (
        lambda x: x.unsafe_split(2),
        lambda x: x.unsafe_chunk(3),
        lambda x: x.unsafe_split_with_sizes([2, 4]),
    ):
        x, y = (torch.arange(12.0, device=place).reshape(6, 2) for place in ("cpu", device))
        for tensor in (x, y):
            part = parts(tensor)[1]
            part.mul_(10)
            assert (part._is_view(), part._version, tensor._version) == (False, 1, 0)
        assert torch.equal(y.cpu(), x)


def test_zero_element_views(device: str) -> None:
    x = torch.zeros(2, 0, 3)
    y = x.to(device)
    assert metadata(y.transpose(0, 2)) == metadata(x.transpose(0, 2))
    assert (y.transpose(0, 2) + 1).shape == (3, 0, 2)
    y[1].fill_(1)


def test_memory_formats(device: str) -> None:
    x = torch.arange(120.0).reshape(2, 3, 4, 5)
    y = x.to(device)
    for form in (torch.channels_last, torch.contiguous_format, torch.preserve_format):
        assert y.clone(memory_format=form).stride() == x.clone(memory_format=form).stride()
    last = y.contiguous(memory_format=torch.channels_last)
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert (last + 1).stride() == (x.contiguous(memory_format=torch.channels_last) + 1).stride()
    assert torch.equal((last * 2).cpu(), x * 2)


def test_as_strided_beyond_the_storage_raises(device: str) -> None:
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        torch.zeros(4).to(device).as_strided((2, 3), (3, 1))


def test_unfold_of_an_expanded_tensor_warns_nothing(device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.zeros(1, 4).to(device).expand(3, 4).unfold(1, 2, 2)
