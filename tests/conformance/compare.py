"""Whether results of the device are as right as the CPU's: near to them, or as near to float64 as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.conformance.suite import in_double, tensors

FACTOR = 2
"""The device's error against float64 may be so many times the CPU's."""


def check(actual: Any, expected: Any, in_float64: Callable[[], Any]) -> None:
    """Compare results on the CPU. `in_float64` computes them once more, when the two differ by more than rounding."""
    found, wanted = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    assert len(found) == len(wanted)
    different = [i for i, (a, e) in enumerate(zip(found, wanted)) if not _close(a, e)]
    if not different:
        return
    exact = pytree.tree_leaves(in_float64())
    for i in different:
        _same_kind(found[i], wanted[i])
        ours, theirs = error(found[i], exact[i]), error(wanted[i], exact[i])
        limit = FACTOR * theirs + rounding(wanted[i].dtype, exact[i])
        assert ours <= limit, f"result {i}: the error is {ours:.3g}, the CPU's {theirs:.3g}"


def error(value: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest difference, infinite where one is finite and the other is not."""
    value, exact = (in_double(x.resolve_conj().resolve_neg()) for x in (value, exact))
    if value.numel() == 0:
        return 0.0
    if not (value.is_floating_point() or value.is_complex()):
        return 0.0 if torch.equal(value, exact.to(value.dtype)) else float("inf")
    same = (value == exact) | (value.isnan() & exact.isnan())
    gaps = torch.where(same, 0.0, (value - exact).abs())
    return float(gaps.nan_to_num(nan=float("inf")).max())


def rounding(dtype: torch.dtype, exact: torch.Tensor) -> float:
    """Half a unit in the last place of the largest finite result."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    return torch.finfo(dtype).eps / 2 * largest(exact)


def largest(exact: torch.Tensor) -> float:
    """The size of the largest finite result."""
    sizes = exact.abs().to(torch.float64)
    sizes = sizes[sizes.isfinite()]
    return float(sizes.max()) if sizes.numel() else 0.0


def _same_kind(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=float("inf"), equal_nan=True)  # inf * 0 would be NaN


def _close(a: Any, b: Any) -> bool:
    try:
        torch.testing.assert_close(a, b, equal_nan=True)
    except AssertionError:
        _same_kind_of_value(a, b)
        return False
    return True


def _same_kind_of_value(a: Any, b: Any) -> None:
    """Everything but the values of tensors must agree at once."""
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        raise AssertionError(f"{a!r} is not {b!r}")
    assert (a.dtype, a.shape) == (b.dtype, b.shape), f"{a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}"


__all__ = ["check", "error", "largest", "rounding", "tensors"]
