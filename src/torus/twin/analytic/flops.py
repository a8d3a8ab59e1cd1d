"""Floating-point operations of an op, counted as XLA's cost analysis does.

Two for each multiply-add of a matmul or convolution, taps that fall into padding left out; one for each element that
elementwise arithmetic makes; those of the combining function for each element that a reduction takes in. What XLA
counts as transcendental (exp, tanh, sqrt, ...) and data movement are none.
Source: the definitions in XLA's ``HloCostAnalysis``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod

from torus.twin.module import Op, Value

ARITHMETIC = frozenset(
    """abs add and atan2 ceil clamp compare convert count_leading_zeros divide floor is_finite maximum minimum multiply
    negate not or popcnt remainder round_nearest_afz round_nearest_even select shift_left shift_right_arithmetic
    shift_right_logical sign subtract xor real imag complex reduce_precision""".split()
)
TRANSCENDENTAL = frozenset(
    """cbrt cosine exponential exponential_minus_one log log_plus_one logistic power rsqrt sine sqrt tan tanh
    chlo.erf chlo.erf_inv chlo.erfc chlo.lgamma chlo.digamma chlo.tan chlo.sinh chlo.cosh chlo.asin chlo.acos chlo.atan
    chlo.asinh chlo.acosh chlo.atanh chlo.zeta chlo.polygamma chlo.bessel_i1e chlo.square""".split()
)


def flops(op: Op, values: list[Value]) -> float:
    """Of one op with the sizes in `values`; without those of loops and branches, which have ops of their own."""
    if op.name in ARITHMETIC:
        return float(prod(values[op.results[0]].shape))
    special = _SPECIAL.get(op.name)
    return special(op, values) if special else 0.0


def contraction(op: Op, values: list[Value]) -> tuple[int, int, int, int]:
    """A dot's sizes (batch, rows, columns, depth)."""
    left, right = (values[i].shape for i in op.operands)
    batch = prod(left[d] for d in op.ints("lhs_batching_dimensions"))
    depth = prod(left[d] for d in op.ints("lhs_contracting_dimensions"))
    return batch, _rest(left, batch * depth), _rest(right, batch * depth), depth


def _rest(shape: tuple[int, ...], taken: int) -> int:
    return prod(shape) // taken if taken else 0


def _dot(op: Op, values: list[Value]) -> float:
    return 2.0 * prod(contraction(op, values))


def _convolution(op: Op, values: list[Value]) -> float:
    numbers = window(op, values)
    if numbers is None:
        return 0.0
    kernel_in, out_elements, taps = numbers
    return 2.0 * kernel_in * out_elements * taps


def window(op: Op, values: list[Value]) -> tuple[int, int, int] | None:
    """A convolution's (channels each output sums over, outputs without space, pairs of output and tap in space)."""
    dims = dimensions(op)
    if dims is None:
        return None
    (_, lhs), ((_, o_in), rhs), (_, out) = dims["input"], dims["kernel"], dims["output"]
    x, w, y = values[op.operands[0]].shape, values[op.operands[1]].shape, values[op.results[0]].shape
    n = len(lhs)
    stride = op.ints("window_strides") or (1,) * n
    padding = op.ints("padding") or (0,)
    if len(padding) == 1:  # all the same
        padding *= 2 * n
    grow = op.ints("lhs_dilation") or (1,) * n
    spread = op.ints("rhs_dilation") or (1,) * n
    taps = prod(
        _valid(x[lhs[i]], w[rhs[i]], y[out[i]], stride[i], padding[2 * i], grow[i], spread[i]) for i in range(n)
    )
    return w[o_in], prod(y) // max(1, prod(y[d] for d in out)), taps


def _valid(size: int, kernel: int, outputs: int, stride: int, low: int, grow: int, spread: int) -> int:
    """How many pairs of output and tap meet an element of the input that is there."""
    if not size:
        return 0
    extent = (size - 1) * grow + 1
    if grow == 1:  # in closed form: the others are short
        return sum(
            max(0, _floor_count(extent - 1 + low - k * spread, stride, outputs) - _below(low - k * spread, stride))
            for k in range(kernel)
        )
    return sum(
        1
        for k in range(kernel)
        for o in range(outputs)
        if 0 <= (at := o * stride + k * spread - low) < extent and at % grow == 0
    )


def _floor_count(last: int, stride: int, outputs: int) -> int:
    """How many outputs start at or before `last`."""
    return min(outputs, last // stride + 1) if last >= 0 else 0


def _below(first: int, stride: int) -> int:
    return -(-first // stride) if first > 0 else 0


def dimensions(op: Op) -> dict[str, tuple[tuple[int, int], tuple[int, ...]]] | None:
    """{"input" | "kernel" | "output": ((batch or output feature, feature), spatial dimensions)} of a convolution."""
    start = op.attributes.find("#stablehlo.conv<")
    if start < 0:
        return None
    text = op.attributes[start + len("#stablehlo.conv<") :]
    parts = re.findall(r"\[([^\]]*)\]", text)[:3]
    found = {}
    for name, part, pair in zip(("input", "kernel", "output"), parts, ("bf", "oi", "bf"), strict=True):
        letters = [letter.strip() for letter in part.split(",")]
        order = sorted((int(letter), i) for i, letter in enumerate(letters) if letter.isdigit())
        found[name] = (letters.index(pair[0]), letters.index(pair[1])), tuple(i for _, i in order)
    return found


def _reduction(op: Op, values: list[Value]) -> float:
    half = len(op.operands) // 2
    taken = prod(values[op.operands[0]].shape) - prod(values[op.results[0]].shape) if half else 0
    return float(max(0, taken) * _body(op))


def _windowed(op: Op, values: list[Value]) -> float:
    size = prod(op.ints("window_dimensions") or (1,))
    return float(prod(values[op.results[0]].shape) * max(1, size - 1) * _body(op))


def _select_and_scatter(op: Op, values: list[Value]) -> float:
    size = prod(op.ints("window_dimensions") or (1,))
    return float(prod(values[op.operands[1]].shape) * size)


def _scatter(op: Op, values: list[Value]) -> float:
    return float(prod(values[op.operands[-1]].shape) * _body(op))


def _body(op: Op) -> int:
    return sum(inner.name in ARITHMETIC for inner in op.regions[0].ops) if op.regions else 1


_SPECIAL: dict[str, Callable[[Op, list[Value]], float]] = {
    "convolution": _convolution,
    "dot_general": _dot,
    "reduce": _reduction,
    "reduce_window": _windowed,
    "scatter": _scatter,
    "select_and_scatter": _select_and_scatter,
}
