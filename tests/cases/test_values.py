"""Exact values that are easy to get subtly wrong: rows V1 to V13 of docs/numerics.md, found with ``pytest -k v07``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, tensor
from torch.nn import functional as F

import torus  # noqa: F401  makes the device exist where the package is not installed

NAN, INF = math.nan, math.inf


def on(device: str, value: Any) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value


def same(actual: Tensor, expected: Any, rtol: float = 0.0) -> None:
    """Equal in values (NaN to NaN, zeros by sign too) and in dtype; by default to the last bit."""
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    actual = actual.detach().cpu()
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=0, equal_nan=True)
    if actual.is_floating_point():
        zero = expected == 0
        assert torch.equal(actual[zero].signbit(), expected[zero].signbit()), f"signs of zeros: {actual} {expected}"


def as_on_cpu(run: Callable[..., Tensor], *args: Any, rtol: float = 0.0) -> Tensor:
    """The device's result of `run`, which must be the CPU's."""
    expected, actual = run(*args), run(*[on("tpu", a) for a in args])
    assert actual.is_tpu
    assert actual.dtype == expected.dtype
    same(actual, expected, rtol)
    return actual


FAR = tensor([[1e4, 1e4 + 1, 1e4 + 2, 1e4 + 3]])
"""Numbers whose variance is lost where it is computed as E[x²] - E[x]²."""


def test_v01_layer_norm_far_from_zero() -> None:
    actual = F.layer_norm(FAR.to("tpu"), (4,))
    same(actual, F.layer_norm(FAR.double(), (4,)).float(), 1e-6)
    assert actual[0, 0].item() == pytest.approx(-1.3416, abs=1e-4)


@pytest.mark.parametrize("shift", [1e4, -3e4, 1e5])
def test_v01_norms_of_shifted_rows(shift: float) -> None:
    x = (torch.arange(24.0).reshape(2, 3, 4) + shift).to("tpu")
    exact = x.cpu().double()
    same(F.layer_norm(x, (4,)), F.layer_norm(exact, (4,)).float(), 1e-5)
    same(F.group_norm(x, 3), F.group_norm(exact, 3).float(), 1e-5)
    same(x.var(-1), exact.var(-1).float(), 1e-6)
    same(torch.std_mean(x, 2)[0], torch.std_mean(exact, 2)[0].float(), 1e-6)
    same(torch.var_mean(x)[0], torch.var_mean(exact)[0].float(), 1e-6)


def test_v02_batch_and_instance_norm_far_from_zero() -> None:
    x = torch.arange(48.0).reshape(2, 3, 2, 4) + 1e4
    for norm in (lambda t: F.batch_norm(t, None, None, training=True), F.instance_norm):
        # An exact result of zero never occurs here, so that relative error means something.
        same(norm(x.to("tpu")), norm(x.double()).float(), 1e-5)


def test_v02_running_variance_far_from_zero() -> None:
    x = torch.arange(24.0).reshape(8, 3) + 1e4
    mean, variance = torch.zeros(3, device="tpu"), torch.ones(3, device="tpu")
    F.batch_norm(x.to("tpu"), mean, variance, training=True, momentum=1.0)
    same(mean, x.double().mean(0).float())
    same(variance, x.double().var(0).float(), 1e-6)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_v03_celu(alpha: float) -> None:
    assert F.celu(tensor([1.0], device="tpu"), alpha=alpha).item() == 1.0
    as_on_cpu(lambda x: F.celu(x, alpha), tensor([1.0, 0.0, -0.5, -3.0, 100.0, -INF, INF, NAN]), rtol=1e-6)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_v04_max_pool_of_minus_infinity(dims: int) -> None:
    pool = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[dims]
    x = torch.full((1, 1, *[4] * dims), -INF)
    as_on_cpu(lambda t: pool(t, 2), x)
    as_on_cpu(lambda t: pool(t, 3, stride=1, padding=1), x)
    as_on_cpu(lambda t: pool(t, 2, return_indices=True)[1], x)


def test_v04_max_pool_of_nan_and_lowest_integers() -> None:
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    x[0, 0, 1, 1] = NAN
    as_on_cpu(lambda t: F.max_pool2d(t, 2), x)
    as_on_cpu(lambda t: F.max_pool2d(t, 3, stride=1, padding=1, return_indices=True)[1], x)
    as_on_cpu(lambda t: F.adaptive_max_pool2d(t, 2), x)


def test_v05_index_fill_counts_from_the_end() -> None:
    same(torch.zeros(1, 4, device="tpu").index_fill(1, tensor([1, -1], device="tpu"), 7.0), [[0.0, 7.0, 0.0, 7.0]])


def test_v05_negative_indices() -> None:
    x, index = torch.arange(12.0).reshape(3, 4), tensor([-1, 0, -3])
    as_on_cpu(lambda x, i: x[i], x, index)
    as_on_cpu(lambda x, i: x[:, i], x, index)
    as_on_cpu(lambda x, i: x.index_put((i,), x.new_tensor(5.0)), x, index)
    as_on_cpu(lambda x, i: x.take(i), x, index)
    as_on_cpu(lambda x, i: x.clone().put_(i, x[0, :3]), x, index)


@pytest.mark.parametrize("index", [-1, 3])
@pytest.mark.parametrize("name", ["index_add", "index_copy", "index_select", "gather", "scatter", "scatter_add"])
def test_v06_index_out_of_range(name: str, index: int) -> None:
    x, source, picks = torch.zeros(3, 2), torch.ones(1, 2), tensor([index])
    calls: dict[str, Callable[..., Tensor]] = {
        "index_add": lambda x, i, s: x.index_add(0, i, s),
        "index_copy": lambda x, i, s: x.index_copy(0, i, s),
        "index_select": lambda x, i, s: x.index_select(0, i),
        "gather": lambda x, i, s: x.gather(0, i[:, None]),
        "scatter": lambda x, i, s: x.scatter(0, i[:, None], s),
        "scatter_add": lambda x, i, s: x.scatter_add(0, i[:, None], s),
    }
    with pytest.raises((IndexError, RuntimeError)):
        calls[name](x, picks, source)
    with pytest.raises(IndexError, match=str(index)):
        calls[name](*[t.to("tpu") for t in (x, picks, source)]).cpu()


def test_v07_lerp() -> None:
    assert torch.lerp(tensor(1e8, device="tpu"), tensor(1.0, device="tpu"), 1.0).item() == 1.0
    start, end = tensor([1e8, 1.0, -1e8, 0.0]), tensor([1.0, 1e8, 1.0, -0.0])
    for weight in (0.0, 0.3, 0.5, 0.7, 1.0):
        as_on_cpu(lambda s, e, w=weight: torch.lerp(s, e, w), start, end, rtol=1e-6)
        as_on_cpu(torch.lerp, start, end, torch.full((4,), weight), rtol=1e-6)
        as_on_cpu(lambda s, e, w=weight: torch._foreach_lerp([s], [e], w)[0], start, end, rtol=1e-6)


DIVIDENDS = [1.0, 6.0, 1e6, -1.0, 0.0, -0.0, 5.5, -5.5, INF, -INF, NAN, 3.0]
DIVISORS = [0.1, -0.1, INF, -INF, 2.0, -2.0, 0.0, NAN]


def pairs(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    grid = torch.cartesian_prod(tensor(DIVIDENDS, dtype=dtype), tensor(DIVISORS, dtype=dtype))
    return grid[:, 0].contiguous(), grid[:, 1].contiguous()


@pytest.mark.parametrize(("x", "y", "expected"), [(1.0, 0.1, 0.1), (1e6, 0.1, 0.0851), (0.0, INF, 0.0)])
def test_v08_remainder(x: float, y: float, expected: float) -> None:
    assert torch.remainder(tensor(x, device="tpu"), y).item() == pytest.approx(expected, abs=1e-4)
    as_on_cpu(torch.remainder, tensor(x), y)
    as_on_cpu(torch.remainder, tensor(x), tensor(y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_v08_remainder_and_fmod_over_the_grid(dtype: torch.dtype) -> None:
    as_on_cpu(torch.remainder, *pairs(dtype))
    as_on_cpu(torch.fmod, *pairs(dtype))


@pytest.mark.parametrize(("x", "y", "expected"), [(1.0, 0.1, 9.0), (6.0, 0.1, 59.0), (INF, 1.0, NAN)])
def test_v09_floor_division(x: float, y: float, expected: float) -> None:
    same(tensor(x, device="tpu") // y, expected)
    same(tensor(x, device="tpu") // tensor(y, device="tpu"), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rounding", ["floor", "trunc", None])
def test_v09_division_over_the_grid(rounding: str | None, dtype: torch.dtype) -> None:
    x, y = pairs(dtype)
    if (rounding, dtype) == ("trunc", torch.bfloat16):
        # The CPU's vectors round the quotient to bfloat16 before they truncate it, its scalars do not (D5): take those.
        expected = torch.stack([torch.div(a, b, rounding_mode="trunc") for a, b in zip(x, y)])
        same(torch.div(x.to("tpu"), y.to("tpu"), rounding_mode="trunc"), expected)
    else:
        as_on_cpu(lambda x, y: torch.div(x, y, rounding_mode=rounding), x, y)


def test_v09_integer_division() -> None:
    x, y = tensor([7, -7, 7, -7, 0, -8]), tensor([2, 2, -2, -2, 3, 4])
    for dtype in (torch.int8, torch.int32, torch.int64):
        for rounding in ("floor", "trunc"):
            as_on_cpu(lambda x, y, r=rounding: torch.div(x, y, rounding_mode=r), x.to(dtype), y.to(dtype))
        as_on_cpu(torch.remainder, x.to(dtype), y.to(dtype))
        as_on_cpu(torch.fmod, x.to(dtype), y.to(dtype))


def test_v10_stable_sort_of_signed_zeros() -> None:
    x = tensor([0.0, -0.0, 0.0, -0.0])
    values, indices = torch.sort(x.to("tpu"), stable=True)
    same(indices, [0, 1, 2, 3])
    same(values, x)


@pytest.mark.parametrize("descending", [False, True])
def test_v10_stable_sort(descending: bool) -> None:
    x = tensor([3.0, NAN, -0.0, 1.0, NAN, 0.0, -INF, 1.0, INF, 3.0])
    for part in (0, 1):
        as_on_cpu(lambda t, p=part: torch.sort(t, stable=True, descending=descending)[p], x)
        as_on_cpu(lambda t, p=part: torch.sort(t, stable=True, descending=descending)[p], x.nan_to_num(0, 9, -9).long())
    as_on_cpu(lambda t: torch.argsort(t, stable=True, descending=descending), x)


def test_v11_bucketize_of_nan() -> None:
    edges = tensor([1.0, 2.0, 3.0])
    for right in (False, True):
        assert torch.bucketize(tensor(NAN, device="tpu"), edges.to("tpu"), right=right).item() == 3
        as_on_cpu(lambda x, e, r=right: torch.bucketize(x, e, right=r), tensor([NAN, -INF, INF, 1.0, 2.5, 3.0]), edges)
        as_on_cpu(lambda x, e, r=right: torch.searchsorted(e, x, right=r), tensor([[NAN, 0.0], [1.0, 4.0]]), edges)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_v11_running_extremes_after_nan(name: str) -> None:
    run = getattr(torch, name)
    x = tensor([1.0, NAN, 2.0, NAN, -1.0])
    as_on_cpu(lambda t: run(t, 0)[0], x)
    as_on_cpu(lambda t: run(t, 0)[1], x)
    as_on_cpu(lambda t: run(t, 0)[1], tensor([1.0, 1.0, 0.0, 2.0, 2.0, 0.0]))


@pytest.mark.filterwarnings("ignore:index_reduce.* is in beta")
def test_v12_integer_scatter_mean_rounds_down() -> None:
    x, index, source = torch.zeros(2, dtype=torch.int64), tensor([0, 0, 1, 1]), tensor([-3, -4, 3, 4])
    run: Callable[..., Tensor] = lambda x, i, s: x.scatter_reduce(0, i, s, "mean", include_self=False)  # noqa: E731
    same(run(*[t.to("tpu") for t in (x, index, source)]), [-4, 3])
    as_on_cpu(run, x, index, source)
    as_on_cpu(lambda x, i, s: x.index_reduce(0, i, s, "mean", include_self=False), x, index, source)
    as_on_cpu(lambda x, i, s: x.scatter_reduce(0, i, s, "mean"), x - 5, index, source)


@pytest.mark.parametrize("mode", ["replicate", "reflect", "circular", "constant"])
@pytest.mark.parametrize("pad", [(-4, 5, 0, 0), (-1, 2, 0, 0), (2, -1, 1, 0), (0, 0, -1, 3), (1, 1, 1, 1)])
def test_v13_backward_of_negative_padding(pad: tuple[int, ...], mode: str) -> None:
    x = torch.randn(5, 3, 4, 4)

    def run(device: str) -> tuple[Tensor, Tensor] | type[Exception]:
        leaf = x.detach().to(device).requires_grad_()
        try:
            y = F.pad(leaf, pad, mode=mode)
            (y * torch.arange(y.shape[-1], device=device)).sum().backward()
            return y.detach().cpu(), leaf.grad.cpu()
        except (RuntimeError, IndexError, ValueError) as error:
            return type(error)

    expected, actual = run("cpu"), run("tpu")
    if isinstance(expected, type):
        # Where the CPU refuses, the device may refuse too or give an answer; it must not abort or return garbage sizes.
        assert isinstance(actual, type), "the CPU raises here"
        return
    assert not isinstance(actual, type), f"{actual} where the CPU has an answer"
    same(actual[0], expected[0])
    same(actual[1], expected[1], 1e-6)
