"""Convolutions of any dimension and their gradients, every one of them written as a plain XLA convolution.

Sizes stay in PyTorch's order (batch, channels, space): XLA chooses the layout; transposing here measured no faster.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from torus.backend.lowering.apply import cast
from torus.backend.lowering.axes import ntuple, opmath
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.passes import in_passes, precision
from torus.backend.lowering.registry import lowers

Ints = Sequence[int]


@lowers("aten::convolution", "aten::convolution_overrideable")
def convolution(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
) -> Any:
    n = input.ndim - 2
    stride, padding, dilation = ntuple(stride, n), ntuple(padding, n), ntuple(dilation, n)
    if min(padding) < 0 or min(dilation) < 1:
        wrong = "negative padding is not supported" if min(padding) < 0 else "dilation should be greater than zero"
        raise RuntimeError(wrong)
    x, w = opmath(input), opmath(weight)
    if transposed:
        extra = ntuple(output_padding, n)
        kernel, sizes = w.shape[2:], x.shape[2:]
        spatial = [
            (sizes[i] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (kernel[i] - 1) + 1 + extra[i] for i in range(n)
        ]
        y = _adjoint(x, w, spatial, stride, padding, dilation, groups)
    else:
        y = _forward(x, w, stride, padding, dilation, groups)
    y = y if bias is None else y + opmath(bias).reshape(1, -1, *[1] * n)
    return cast(y, str(input.dtype))


@lowers("aten::_slow_conv2d_forward")
def slow_conv2d_forward(input: Any, weight: Any, kernel_size: Ints, bias: Any, stride: Ints, padding: Ints) -> Any:
    """The filters may come with all but their first dimension in one."""
    filters = weight.reshape(weight.shape[0], -1, *ntuple(kernel_size, 2))
    return convolution(input, filters, bias, stride, padding, (1, 1), False, (0, 0), 1)


@lowers("aten::slow_conv_dilated2d", "aten::slow_conv_dilated3d")
def slow_conv_dilated(
    input: Any,
    weight: Any,
    kernel_size: Ints,
    bias: Any = None,
    stride: Ints = (1,),
    padding: Ints = (0,),
    dilation: Ints = (1,),
) -> Any:
    return _with_batch(input, weight, bias, stride, padding, dilation, False, (0,))


@lowers("aten::_slow_conv2d_backward.output_mask")
def slow_conv2d_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    output_mask: Sequence[bool],
) -> Any:
    return convolution_backward_overrideable(
        grad_output, input, weight, stride, padding, (1, 1), False, (0, 0), 1, output_mask
    )


@lowers("aten::slow_conv_transpose2d", "aten::slow_conv_transpose3d")
def slow_conv_transpose(
    input: Any,
    weight: Any,
    kernel_size: Ints,
    bias: Any = None,
    stride: Ints = (1,),
    padding: Ints = (0,),
    output_padding: Ints = (0,),
    dilation: Ints = (1,),
) -> Any:
    return _with_batch(input, weight, bias, stride, padding, dilation, True, output_padding)


def _with_batch(input: Any, weight: Any, *options: Any) -> Any:
    """The convolution in one group of an input that may come without its batch dimension."""
    if input.ndim == weight.ndim:
        return convolution(input, weight, *options, 1)
    return convolution(input[None], weight, *options, 1)[0]


@lowers("aten::convolution_backward_overrideable")
def convolution_backward_overrideable(
    grad_output: Any,
    input: Any,
    weight: Any,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    n = input.ndim - 2
    geometry = ntuple(stride, n), ntuple(padding, n), ntuple(dilation, n)
    g, x, w = opmath(grad_output), opmath(input), opmath(weight)
    grad_input = grad_weight = grad_bias = None
    if output_mask[0]:
        if transposed:
            grad_input = _forward(g, w, *geometry, groups, x.shape[2:])
        else:
            grad_input = _adjoint(g, w, x.shape[2:], *geometry, groups)
    if output_mask[1]:
        large, small = (g, x) if transposed else (x, g)
        grad_weight = _filter_gradient(large, small, w.shape, *geometry, groups)
    if output_mask[2]:
        grad_bias = g.sum(axis=(0, *range(2, g.ndim)))
    grads = (grad_input, grad_weight, grad_bias)
    return tuple(g if g is None else cast(g, str(input.dtype)) for g in grads)


@lowers("aten::convolution_backward")
def convolution_backward(
    grad_output: Any, input: Any, weight: Any, bias_sizes: Ints | None, *geometry_and_mask: Any
) -> Any:
    return convolution_backward_overrideable(grad_output, input, weight, *geometry_and_mask)


def _convolve(
    x: Any, w: Any, stride: Ints, padding: Sequence[tuple[int, int]], base: Ints, dilation: Ints, groups: int
) -> Any:
    spatial = [
        (max((size - 1) * b + 1, 0) + low + high - d * (k - 1) - 1) // s + 1
        for size, b, (low, high), d, k, s in zip(x.shape[2:], base, padding, dilation, w.shape[2:], stride)
    ]
    if x.size == 0 or w.size == 0:
        return jnp.zeros((x.shape[0], w.shape[0], *spatial), x.dtype)
    convolve = functools.partial(
        lax.conv_general_dilated,
        window_strides=stride,
        padding=padding,
        lhs_dilation=base,
        rhs_dilation=dilation,
        feature_group_count=groups,
        precision=precision(),
    )
    return in_passes(convolve, x, w)


def _forward(
    x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int, spatial: Ints | None = None
) -> Any:
    """`x` (N, I, ...) with filters (O, I / groups, ...); `spatial` pins the output's sizes."""
    pads = [(p, p) for p in padding]
    if spatial is not None:
        pads = [
            (p, (o - 1) * s + d * (k - 1) + 1 - n - p)
            for o, s, d, k, n, p in zip(spatial, stride, dilation, w.shape[2:], x.shape[2:], padding)
        ]
    return _convolve(x, w, stride, pads, (1,) * len(stride), dilation, groups)


def _adjoint(y: Any, w: Any, spatial: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    """The transpose of `_forward` with respect to its input, whose spatial sizes are given."""
    pads = [
        (d * (k - 1) - p, size - (n - 1) * s - 1 + p)
        for d, k, p, size, n, s in zip(dilation, w.shape[2:], padding, spatial, y.shape[2:], stride)
    ]
    return _convolve(y, _flip(w, groups), (1,) * len(stride), pads, stride, dilation, groups)


def _flip(w: Any, groups: int) -> Any:
    """Filters (O, I / groups, ...) as the (I, O / groups, ...) of the transposed convolution, reversed in space."""
    outputs, inputs, *kernel = w.shape
    w = lax.rev(w, tuple(range(2, w.ndim))).reshape(groups, outputs // groups, inputs, *kernel)
    return w.swapaxes(1, 2).reshape(groups * inputs, outputs // groups, *kernel)


def _filter_gradient(x: Any, g: Any, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    """Gradient of `_forward` for its filters: channels become the batch, the batch is summed, strides swap roles."""
    if x.size == 0 or g.size == 0:
        return jnp.zeros(shape, x.dtype)
    batch, channels, *space = x.shape
    lhs = x.reshape(batch, groups, channels // groups, *space)
    lhs = jnp.moveaxis(lhs, 0, 2).swapaxes(0, 1).reshape(channels // groups, groups * batch, *space)
    pads = [
        (p, (k - 1) * d + (m - 1) * s + 1 - n - p)
        for p, k, d, m, s, n in zip(padding, shape[2:], dilation, g.shape[2:], stride, space)
    ]
    return _convolve(lhs, g.swapaxes(0, 1), dilation, pads, (1,) * len(stride), stride, groups).swapaxes(0, 1)
