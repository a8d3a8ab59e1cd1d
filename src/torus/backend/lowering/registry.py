"""The rule registry: one table from an ATen overload to the function that says what it computes.

A rule takes the arguments of its op in schema order. Tensors arrive as JAX arrays of the tensor's own sizes (memory
layout never reaches a rule), `Scalar` and `float` arguments as 0-d arrays that are traced (a new value compiles
nothing), and everything else (ints, lists, bools, strings, dtypes) as plain Python values. It returns one array, or a
tuple of them.

The same rule serves the functional op, its in-place form and its `out=` form; dtype, sizes and strides of the results
come from PyTorch's meta kernels and the values are cast to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Promotion = Literal["result", "common"]


class OutSpec(NamedTuple):
    """What PyTorch says of one result: its sizes and its dtype (a NumPy/ml_dtypes name such as ``"bfloat16"``)."""

    shape: tuple[int, ...]
    dtype: str


class Bounds(NamedTuple):
    """Which values of a `Scalar` argument an op accepts: from `low` to `high`, without these where `open`.

    words: the error of others, which ends with the value unless this is a sentence.
    """

    words: str
    low: float = -math.inf
    high: float = math.inf
    open: bool = False

    def check(self, value: float) -> None:
        """Raises RuntimeError for a value outside, as the core does for a call."""
        inside = self.low < value < self.high if self.open else self.low <= value <= self.high
        if not inside:
            raise RuntimeError(self.words if self.words.endswith(".") else f"{self.words}{value:g}")


class Order(NamedTuple):
    """Two numbers among the arguments, the first of which must not be above the second (`strict`: is below it)."""

    low: str
    high: str
    strict: bool
    words: str

    def check(self, low: float, high: float) -> None:
        """Raises RuntimeError for two numbers in another order, as the core does for a call."""
        if not (low < high if self.strict else low <= high):
            raise RuntimeError(f"{self.words}: {self.low}={low:g}, {self.high}={high:g}")


@dataclass(frozen=True)
class Rule:
    """One row of the table. See `lowers` for the meaning of the fields."""

    name: str
    fn: Callable[..., Any]
    promote: Promotion | None
    static: frozenset[str]
    runtime: frozenset[str]
    wide: bool
    mutates: tuple[str, ...]
    host_tensors: bool
    range_length: bool
    wants_out: bool
    eager: bool
    known: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    order: Order | None = None
    fits: frozenset[str] = frozenset()

    def check(self, numbers: Mapping[str, float]) -> None:
        """Raises RuntimeError for numbers among the arguments that the op does not accept."""
        for name in self.bounds.keys() & numbers.keys():
            self.bounds[name].check(numbers[name])
        if self.order is not None and {self.order.low, self.order.high} <= numbers.keys():
            self.order.check(numbers[self.order.low], numbers[self.order.high])

    @property
    def draws(self) -> bool:
        """Whether the rule takes random numbers."""
        code = self.fn.__code__
        return "generator" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


RULES: dict[str, Rule] = {}


def lowers(
    *names: str,
    promote: Promotion | None = None,
    static: tuple[str, ...] = (),
    runtime: tuple[str, ...] = (),
    known: Mapping[str, tuple[float, ...]] | None = None,
    bounds: Mapping[str, Bounds] | None = None,
    order: Order | None = None,
    fits: tuple[str, ...] = (),
    wide: bool = False,
    mutates: tuple[str, ...] = (),
    host_tensors: bool = False,
    range_length: bool = False,
    eager: bool = True,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a rule for one or more ATen overloads, named as in ``"aten::add.Tensor"``.

    promote: ``"result"`` converts every tensor and scalar argument to the dtype of the first result (half precisions to
        float32, as PyTorch computes them); ``"common"`` to the promoted dtype of the arguments (comparisons). None: as
        they are.
    static: `Scalar`/`float` arguments that the program must know as Python values.
    runtime: `int` arguments that should be traced instead of specialised.
    known: values of a `Scalar` argument that have programs of their own, in which the rule gets them as Python numbers;
        all others are traced.
    bounds, order: what traced numbers may be; a RuntimeError says so at the call, whether or not it has a program.
    fits: traced numbers that the dtype of the first result must be able to hold, else a RuntimeError says so.
    wide: scalars keep 64 bits even where the tensors have 32.
    mutates: arguments that the op writes although its schema does not say so; the rule returns their new values after
    its results
        (None for an argument that was None).
    host_tensors: CPU tensors with dimensions are moved to the device, as CUDA does for indices; otherwise they are an
    error.

    range_length: the traced scalars `start`, `end` and `step` decide the length of the result, which so joins the
    signature in their place.
    eager: False for what the core does by itself outside of compiled graphs: views, copies, new tensors.

    A rule with a keyword-only parameter ``out`` receives the `OutSpec` of its result (a tuple of them when there are
    several).
    Raises ValueError when two rules claim one op in the same registry.
    """

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        code = fn.__code__  # `inspect.signature` would be half of the time that it takes to import the rules
        wants_out = "out" in code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        for name in names:
            if name in RULES:
                raise ValueError(
                    f"{name} already has a rule: {RULES[name].fn.__module__}.{RULES[name].fn.__qualname__}"
                )
            RULES[name] = Rule(
                name,
                fn,
                promote,
                frozenset(static),
                frozenset(runtime),
                wide,
                mutates,
                host_tensors,
                range_length,
                wants_out,
                eager,
                known or {},
                bounds or {},
                order,
                frozenset(fits),
            )
        return fn

    return register
