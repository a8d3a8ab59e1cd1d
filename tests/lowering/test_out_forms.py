"""Results that PyTorch says little of: an out= form whose functional form is written with others, uncounted lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torus  # noqa: F401

aten = torch.ops.aten
IMAGE = torch.randn(2, 3, 6, 7, generator=torch.Generator().manual_seed(0))
CASES: list[tuple[Callable[..., Any], Any]] = [
    (lambda x, out: aten.conj_physical.out(x, out=out), torch.randn(3, 4, dtype=torch.complex64)),
    (lambda x, out: aten.conj_physical.out(x, out=out), torch.randn(3, 4)),
    (lambda x, out: aten.adaptive_avg_pool2d.out(x, [3, 2], out=out), IMAGE),
    (lambda x, out: aten.adaptive_avg_pool3d.out(x, [2, 3, 2], out=out), IMAGE),
    (lambda x, out: aten.linalg_eigvals.out(x, out=out).abs(), torch.eye(3) * 2),
    (lambda x, out: aten.repeat_interleave.Tensor_out(x, out=out), torch.tensor([2, 0, 3])),
    (lambda x, out: torch.histogram(x, 5, out=(out, x.new_empty(0)))[0], IMAGE),  # no meta kernel says its sizes
]


@pytest.mark.parametrize(("call", "x"), CASES)
def test_result_is_resized_and_written(
    call: Callable[..., Any], x: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.tpu, "cpu_fallback", "error")  # type: ignore[attr-defined]
    dtype = torch.complex64 if x.dim() == 2 and x[0, 1] == 0 else x.dtype
    expected = call(x, torch.empty(0, dtype=dtype))
    out = torch.empty(0, dtype=dtype, device="tpu")
    torch.testing.assert_close(call(x.to("tpu"), out).cpu(), expected)
    assert out.shape == expected.shape


def test_a_list_of_results_that_no_meta_kernel_counts() -> None:
    points = torch.rand(5, 2, generator=torch.Generator().manual_seed(0))
    edges = aten._histogramdd_bin_edges(points.to("tpu"), [2, 3])
    assert [e.shape for e in edges] == [(3,), (4,)]
    torch.testing.assert_close([e.cpu() for e in edges], aten._histogramdd_bin_edges(points, [2, 3]))


def test_lists_of_results_that_no_meta_kernel_counts() -> None:
    options = dict.fromkeys(("weight_decay", "momentum", "lr", "dampening"), 0.5)
    flags = dict.fromkeys(("nesterov", "maximize", "is_first_step"), False)
    columns = [[torch.full((n,), start) for n in (2, 3)] for start in (1.0, 2.0, 3.0)]
    expected = aten._fused_sgd(*columns, **options, **flags)
    actual = aten._fused_sgd(*[[t.to("tpu") for t in column] for column in columns], **options, **flags)
    torch.testing.assert_close(actual, expected, check_device=False)


def test_an_op_that_writes_an_argument_has_an_out_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.tpu, "cpu_fallback", "error")  # type: ignore[attr-defined]
    x = torch.linspace(-1, 1, 6)
    noise, out = torch.zeros(6, device="tpu"), torch.zeros(6, device="tpu")
    aten.rrelu_with_noise.out(x.to("tpu"), noise, 0.1, 0.3, True, None, out=out)
    assert (noise.cpu()[:3] < 0.3).all()
    torch.testing.assert_close(out.cpu(), x * noise.cpu())
