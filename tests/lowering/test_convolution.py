"""Convolutions of every geometry and their gradients, against CPU PyTorch in float64."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.agree import unexercised
from tests.lowering.evaluate import evaluate
from tests.lowering.test_kernels import NAMED
from torus.backend.lowering import convolution

pytestmark = pytest.mark.slow

aten = torch.ops.aten
SIZES = {1: (11,), 2: (9, 8), 3: (5, 6, 4)}
KERNELS = {1: (3,), 2: (3, 2), 3: (3, 2, 1)}
# transposed, groups, in channels, out channels, stride, padding, dilation, output_padding
GEOMETRIES = [
    (False, 1, 4, 6, 1, 1, 1, 0),
    (False, 2, 4, 6, 2, 1, 1, 0),
    (False, 4, 4, 8, 2, 2, 2, 0),
    (False, 1, 3, 2, 4, 0, 1, 0),
    (True, 1, 4, 6, 2, 1, 1, 1),
    (True, 2, 4, 6, 3, 1, 2, 2),
    (True, 2, 4, 6, 1, 0, 3, 2),
]


def randn(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def case(n: int, transposed: bool, groups: int, inputs: int, outputs: int, *geometry: int) -> tuple:
    """Arguments of aten::convolution in float64."""
    stride, padding, dilation, output_padding = ([v] * n for v in geometry)
    lead = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    x, w, b = randn(2, inputs, *SIZES[n]), randn(*lead, *KERNELS[n], seed=1), randn(outputs, seed=2)
    return x, w, b, stride, padding, dilation, transposed, output_padding, groups


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual.to(expected.dtype), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_convolution_and_its_gradients(n: int, geometry: tuple) -> None:
    x, w, b, *rest = case(n, *geometry)
    expected = aten.convolution(x, w, b, *rest)
    close(evaluate(aten.convolution_overrideable.default, x.float(), w.float(), b.float(), *rest), expected)
    g = randn(*expected.shape, seed=3)
    wanted = aten.convolution_backward(g, x, w, [len(b)], *rest, [True] * 3)
    op = aten.convolution_backward_overrideable.default
    for a, e in zip(evaluate(op, g.float(), x.float(), w.float(), *rest, [True] * 3), wanted):
        close(a, e)


def test_masked_gradients_are_none() -> None:
    x, w, b, *rest = case(2, *GEOMETRIES[0])
    g = randn(*aten.convolution(x, w, b, *rest).shape, seed=3)
    grads = evaluate(aten.convolution_backward_overrideable.default, g, x, w, *rest, [False, True, False])
    assert grads[0] is None and grads[2] is None
    close(grads[1], aten.convolution_backward(g, x, w, None, *rest, [False, True, False])[1])


def test_composite_names_share_the_rule() -> None:
    x, w, b, *rest = case(2, *GEOMETRIES[0])
    close(evaluate(aten.convolution.default, x, w, None, *rest), aten.convolution(x, w, None, *rest))
    g = randn(*aten.convolution(x, w, b, *rest).shape, seed=3)
    actual = evaluate(aten.convolution_backward.default, g, x, w, [len(b)], *rest, [True] * 3)
    for a, e in zip(actual, aten.convolution_backward(g, x, w, [len(b)], *rest, [True] * 3)):
        close(a, e)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_accumulates_in_float32(dtype: torch.dtype) -> None:
    x, w, b, *rest = case(2, *GEOMETRIES[0])
    x, w, b = x.to(dtype), w.to(dtype), b.to(dtype)
    actual = evaluate(aten.convolution_overrideable.default, x, w, b, *rest)
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, aten.convolution(x.double(), w.double(), b.double(), *rest).to(dtype))


def test_empty_batch() -> None:
    x, w, b, *rest = case(2, *GEOMETRIES[0])
    assert evaluate(aten.convolution_overrideable.default, x[:0], w, b, *rest).shape == (0, 6, 9, 9)
    grads = evaluate(
        aten.convolution_backward_overrideable.default, randn(0, 6, 9, 9), x[:0], w, *rest, [True, True, True]
    )
    assert grads[0].shape == x[:0].shape and not grads[1].any() and not grads[2].any()


def test_slow_convolution_with_flat_filters() -> None:
    x, w, bias = randn(2, 3, 8, 9), randn(4, 3, 3, 2, seed=1), randn(4, seed=2)
    expected = aten.convolution(x, w, bias, [2, 1], [1, 0], [1, 1], False, [0, 0], 1)
    for filters in (w, w.reshape(4, -1)):
        close(evaluate(aten._slow_conv2d_forward.default, x, filters, [3, 2], bias, [2, 1], [1, 0]), expected)


@pytest.mark.parametrize("n", [2, 3])
def test_slow_transposed_convolution(n: int) -> None:
    op = getattr(aten, f"slow_conv_transpose{n}d").default
    x, w, bias = randn(2, 3, *[4] * n), randn(3, 5, *[3] * n, seed=1), randn(5, seed=2)
    options = [3] * n, bias, [2] * n, [1] * n, [1] * n, [1] * n
    close(evaluate(op, x, w, *options), op(x, w, *options))
    if n == 3:  # PyTorch's meta kernel of the other one adds a dimension
        close(evaluate(op, x[0], w, *options), op(x[0], w, *options))


def test_every_rule_is_exercised() -> None:
    ops = [aten.convolution, aten.convolution_overrideable, aten._slow_conv2d_forward]
    ops += [aten.slow_conv_transpose2d, aten.slow_conv_transpose3d]
    ops += [aten.convolution_backward, aten.convolution_backward_overrideable]
    assert not unexercised(convolution, [*NAMED, *(op.default for op in ops)])
