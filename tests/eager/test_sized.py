"""Ops whose result has a size that is a value run on the device, with a program for each power of two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torus import _C

X = torch.tensor([[3.0, 0.0, 3.0, -1.0], [0.0, 0.0, 7.0, 3.0], [3.0, 0.0, 0.0, -1.0]])
NONE = torch.zeros(0)

OPS: dict[str, Callable[[torch.Tensor], Any]] = {
    "nonzero": torch.nonzero,
    "nonzero of a number": lambda x: torch.nonzero(x.sum()),
    "nonzero, out": lambda x: torch.nonzero(x, out=torch.zeros(0, dtype=torch.int64, device=x.device)),
    "where": torch.where,
    "argwhere": torch.argwhere,
    "masked_select": lambda x: torch.masked_select(x, x > 0),
    "masked_select, broadcast": lambda x: torch.masked_select(x, x[:, :1] > 0),
    "masked_select, out": lambda x: torch.masked_select(x, x > 0, out=x.new_zeros(1)),
    "mask": lambda x: x[x > 0],
    "mask of rows": lambda x: x[x[:, 0] > 0],
    "mask of columns": lambda x: x[:, x.sum(0) > 0],
    "mask and number": lambda x: x[x[:, 0] > 0, 1],
    "mask and positions": lambda x: x[x[:, 0] > 0, torch.tensor([0, 3], device=x.device)],
    "mask of nothing": lambda x: x[x > 100],
    "bytes as a mask": lambda x: x[(x > 0).byte()],
    "masked write": lambda x: x.clone().index_put_((x > 0,), torch.arange(6.0, device=x.device)[: int((x > 0).sum())]),
    "masked add": lambda x: x.clone().index_put_((x > 0,), x.new_ones(()), accumulate=True),
    "masked write of rows": lambda x: torch.index_put(x, (x[:, 0] > 0,), x[0] * 2),
    "unique": torch.unique,
    "unique, all": lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    "unique, counts": lambda x: torch._unique2(x, True, False, True),
    "_unique": lambda x: torch._unique(x, True, True),
    "unique of booleans": lambda x: torch.unique(x > 0, return_inverse=True, return_counts=True),
    "unique of NaN": lambda x: torch.unique(x / 0, return_counts=True),
    "unique_consecutive": lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
    "bincount": lambda x: torch.bincount(x.flatten().abs().long()),
    "bincount, weighted": lambda x: torch.bincount(x.flatten().abs().int(), x.flatten().double(), minlength=20),
    "bincount, float": lambda x: torch.bincount(x.flatten().abs().byte(), x.flatten()),
    "bincount of nothing": lambda x: torch.bincount(x.flatten()[:0].long(), minlength=3),
    "repeat_interleave": lambda x: torch.repeat_interleave(x.flatten().abs().long()),
    "repeat_interleave of rows": lambda x: torch.repeat_interleave(x, x[:, 0].int(), 0),
    "equal": lambda x: (
        torch.equal(x, x.clone()),
        torch.equal(x, x + 1),
        torch.equal(x, x[0]),
        torch.equal(x / 0, x / 0),
        torch.equal(x, x.long()),
    ),
}


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8", "ignore:An output with one or more elements")
def test_values(device: str, op: Callable[[torch.Tensor], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.tpu, "cpu_fallback", "error")
    expected, actual = op(X), op(X.to(device))
    torch.testing.assert_close(actual, expected, check_device=False, equal_nan=True, rtol=0, atol=0)
    assert _contiguous(actual) == _contiguous(expected)


def _contiguous(results: Any) -> list[bool]:
    return [r.is_contiguous() for r in torch.utils._pytree.tree_leaves(results) if isinstance(r, torch.Tensor)]


@pytest.mark.parametrize("name", ["masked_select", "mask", "mask of rows", "mask of nothing", "unique", "bincount"])
def test_nothing_lies_behind_a_result(device: str, name: str) -> None:
    """Its bucket has room for more."""
    expected, found = OPS[name](X), OPS[name](X.to(device))
    assert found.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        found.as_strided((found.numel() + 1,), (1,))
    found.copy_(expected + 1)
    torch.testing.assert_close(found.clone().cpu(), expected + 1)
    grown = found.resize_(8).zero_()
    assert grown.add_(1).tolist() == [1.0] * 8


@pytest.mark.parametrize("name", ["nonzero", "masked_select", "mask", "unique", "unique_consecutive", "where"])
def test_of_nothing(device: str, name: str) -> None:
    torch.testing.assert_close(OPS[name](NONE.to(device)), OPS[name](NONE), check_device=False)


BAD: dict[str, Callable[[torch.Tensor], Any]] = {
    "mask of other sizes": lambda x: x[torch.ones(2, dtype=torch.bool, device=x.device)],
    "mask with more dimensions": lambda x: x[torch.ones(3, 4, 1, dtype=torch.bool, device=x.device)],
    "masked_select by numbers": lambda x: torch.masked_select(x, x),
    "bincount of negative numbers": lambda x: torch.bincount(x.flatten().long()),
    "bincount of fractions": lambda x: torch.bincount(x.flatten()),
    "bincount of a matrix": lambda x: torch.bincount(x.long()),
    "bincount, weights": lambda x: torch.bincount(x[0].abs().long(), x[0, :2]),
    "bincount, minlength": lambda x: torch.bincount(x[0].abs().long(), minlength=-1),
    "negative repeats": lambda x: torch.repeat_interleave(x[0].long()),
    "repeats of a matrix": lambda x: torch.repeat_interleave(x.long()),
    "fractions of repeats": lambda x: torch.repeat_interleave(x[0]),
    "too many values": lambda x: x.index_put((x > 0,), torch.ones(3, device=x.device)),
}


@pytest.mark.parametrize("op", BAD.values(), ids=BAD)
def test_errors_are_those_of_the_cpu(device: str, op: Callable[[torch.Tensor], Any]) -> None:
    with pytest.raises((RuntimeError, IndexError)) as expected:
        op(X)
    with pytest.raises(type(expected.value)) as actual:
        op(X.to(device))
    assert str(actual.value).splitlines()[0] == str(expected.value).splitlines()[0]


COUNTED = {name: OPS[name] for name in ("nonzero", "masked_select", "mask", "unique, all", "bincount")}


@pytest.mark.parametrize("op", COUNTED.values(), ids=COUNTED)
def test_a_program_for_each_power_of_two(device: str, op: Callable[[torch.Tensor], Any]) -> None:
    def added(size: int) -> int:
        x = (torch.arange(256.0) * (torch.arange(256) < size)).to(device)
        before = _C.signature_count()
        op(x)
        return _C.signature_count() - before

    added(40)
    assert added(50) == 0


def test_gradients(device: str) -> None:
    for op in (OPS["mask"], OPS["mask of rows"], OPS["masked_select"]):
        cpu = X.clone().requires_grad_()
        x = X.to(device).requires_grad_()
        op(cpu).square().sum().backward()
        op(x).square().sum().backward()
        assert torch.equal(x.grad.cpu(), cpu.grad)
