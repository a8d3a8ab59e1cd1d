"""The assertion of the lowering tests: a rule gives what CPU PyTorch gives."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

import torch

from tests.lowering.evaluate import evaluate
from torus.backend.lowering.registry import RULES

Case = tuple[Any, ...]
"""An OpOverload, its arguments and, last, a dict of keyword arguments if there are any."""


def agrees(op: Any, *args: Any, reference: Any = None, **kwargs: Any) -> None:
    """Compare the rule for `op` (an OpOverload) with CPU PyTorch: values, dtypes and sizes of every result.

    `reference` replaces CPU PyTorch's answer where it has no kernel for `op`. Tolerances are torch.testing's defaults.
    """
    actual = evaluate(op, *args, **kwargs)
    expected = op(*args, **kwargs) if reference is None else reference
    torch.testing.assert_close(actual, list(expected) if isinstance(expected, tuple) else expected, equal_nan=True)


def run(case: Case) -> None:
    """Check one case."""
    op, *args = case
    kwargs = args.pop() if args and isinstance(args[-1], dict) else {}
    agrees(op, *args, **kwargs)


def name(op: Any) -> str:
    """``aten.sum.default`` -> ``"aten::sum"``, as rules are registered."""
    overload = op._schema.overload_name
    return op._schema.name + ("." + overload if overload else "")


def label(case: Any) -> str:
    """A readable test id."""
    parts = [f"{str(a.dtype)[6:]}{list(a.shape)}" if isinstance(a, torch.Tensor) else str(a) for a in case[1:]]
    return f"{name(case[0])[6:]}({', '.join(parts)})"


def unexercised(module: ModuleType, ops: Iterable[Any]) -> set[str]:
    """The rules of `module` that no op in `ops` reaches; a second name that is an out= form is tried on the device."""
    rules = {n for n, rule in RULES.items() if rule.fn.__module__ == module.__name__ and not n.endswith(".out")}
    return rules - {name(op) for op in ops}
