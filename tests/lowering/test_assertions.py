"""Assertions about values: a RuntimeError with the message, at the latest where the host waits."""

from __future__ import annotations

import pytest
import torch

import torus  # noqa: F401


def test_what_holds_is_silent() -> None:
    torch._assert_async(torch.tensor([2.5], device="tpu"))
    torch._assert_async(torch.tensor(True, device="tpu"), "no {message}")
    torch.tpu.synchronize()  # type: ignore[attr-defined]


@pytest.mark.parametrize("message", [None, "sizes {must} agree"])
def test_what_fails_raises_with_its_message(message: str | None) -> None:
    def run() -> None:
        torch._assert_async(torch.zeros((), device="tpu"), *([message] if message else []))
        torch.tpu.synchronize()  # type: ignore[attr-defined]

    with pytest.raises(RuntimeError, match=message or "got zero"):
        run()


def test_more_than_one_value_is_ambiguous() -> None:
    with pytest.raises(RuntimeError, match="ambiguous"):
        torch._assert_async(torch.ones(2, device="tpu"))


def test_tensors_are_the_same_view_of_one_storage() -> None:
    x = torch.zeros(4, device="tpu")
    assert x.is_set_to(x.view(4)) and not x.is_set_to(x.view(2, 2)) and not x.is_set_to(torch.zeros(4, device="tpu"))
