"""Assertions about values: they compute nothing, and report with the checks of the program that holds them."""

from __future__ import annotations

from typing import Any

from torus.backend.lowering.apply import check_true
from torus.backend.lowering.registry import lowers


@lowers("aten::_assert_async", "aten::_assert_async.msg")
def assert_async(x: Any, assert_msg: str = "Expected Tensor with single nonzero value, but got zero") -> Any:
    """One element that must not be zero; a RuntimeError with the message otherwise."""
    if x.size != 1:
        raise RuntimeError(f"Boolean value of Tensor with {'more than one' if x.size else 'no'} value is ambiguous")
    check_true(x.reshape(()) != 0, assert_msg)
    return ()
