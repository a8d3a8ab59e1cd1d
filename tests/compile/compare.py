"""The assertion of these tests: a function compiled for the device gives what it gives on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

import torus  # noqa: F401  makes the device exist where the package is not installed

randn = partial(torch.randn, generator=torch.Generator().manual_seed(0))
STRICT: dict[str, Any] = {"fallback": False}
"""Options with which a graph that cannot be compiled is an error."""
_ROUNDING = {torch.float64: 1e-13, torch.complex128: 1e-13, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def compiled(fn: Any, **options: Any) -> Any:
    """`fn` compiled for the device, from the beginning: nothing is known of earlier compilations."""
    torch._dynamo.reset()
    kwargs = {name: options.pop(name) for name in ("dynamic", "fullgraph", "mode") if name in options}
    return torch.compile(fn, backend="tpu", options=STRICT | options, **kwargs)


def moved(value: Any, device: str) -> Any:
    """Copies of all tensors in `value` on a device; those that require gradients still do, as leaves."""

    def move(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        copy = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=device)
        with torch.no_grad():
            copy.copy_(x)
        return copy.requires_grad_(x.requires_grad)

    return pytree.tree_map(move, value)


def same(actual: Any, expected: Any, tolerance: float | None = None, strides: bool = True) -> None:
    """Both have the same structure; tensors the same dtype, sizes, strides and, but for rounding, values.

    tolerance: of the norm of the difference, relative to that of the expected tensor.
    """
    left, left_spec = pytree.tree_flatten(actual)
    right, right_spec = pytree.tree_flatten(expected)
    assert left_spec == right_spec
    for a, e in zip(left, right):
        if not isinstance(e, torch.Tensor):
            assert a == e
            continue
        assert (a.dtype, a.shape, a.requires_grad) == (e.dtype, e.shape, e.requires_grad)
        if strides and e.numel():
            assert a.stride() == e.stride()
        _same_values(a.detach().cpu(), e.detach().cpu(), tolerance)


def _same_values(a: torch.Tensor, e: torch.Tensor, tolerance: float | None) -> None:
    if not (e.is_floating_point() or e.is_complex()):
        assert torch.equal(a, e)
        return
    finite = torch.isfinite(e)
    assert torch.equal(torch.isfinite(a), finite)
    assert torch.equal(a.isnan(), e.isnan())
    if not e.is_complex():
        assert torch.equal(a == torch.inf, e == torch.inf)
    limit = _ROUNDING.get(e.dtype, 2e-6) if tolerance is None else tolerance
    wide = torch.complex128 if e.is_complex() else torch.float64
    a, e = a[finite].to(wide), e[finite].to(wide)
    assert (a - e).norm() <= limit * e.norm() + 1e-30


def agree(
    fn: Callable[..., Any],
    *args: Any,
    backward: bool = False,
    tolerance: float | None = None,
    strides: bool = True,
    **options: Any,
) -> None:
    """`fn` of `args`, compiled for the device, gives the same as on the CPU, leaves the same in its arguments and, with
    `backward`, the same gradients. options: of the backend, or `dynamic`, `fullgraph`, `mode`.
    """
    here, there = moved(args, "cpu"), moved(args, "tpu")
    if backward:
        for x in _tensors((here, there)):
            x.requires_grad_(x.is_floating_point())
    expected, actual = fn(*here), compiled(fn, **options)(*there)
    if backward:
        pull(expected), pull(actual)
    same(actual, expected, tolerance, strides)
    same(there, here, tolerance)
    if backward:
        gradients = [[x.grad for x in _tensors(side)] for side in (there, here)]
        assert any(g is not None for g in gradients[1])
        same(*gradients, tolerance, strides)


def pull(outputs: Any) -> None:
    """Backward from all outputs that have a gradient, each with a gradient that differs in every element."""
    wanted = [x for x in _tensors(outputs) if x.requires_grad]
    ramps = [torch.linspace(-1, 2, x.numel()).reshape(x.shape).to(x) for x in wanted]
    torch.autograd.backward(wanted, ramps)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]
