"""Cumulative ops against CPU PyTorch."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import pytest
import torch

from tests.lowering.agree import Case, label, run, unexercised
from tests.lowering.evaluate import evaluate
from tests.lowering.test_kernels import NAMED
from torus.backend.lowering import scans
from torus.backend.lowering.apply import Context, tracing

pytestmark = pytest.mark.slow

aten = torch.ops.aten
NAN, INF = math.nan, math.inf

X = torch.randn(3, 7, generator=torch.Generator().manual_seed(0))
SPECIAL = torch.tensor([[1.0, 3.0, 3.0, NAN, 5.0, NAN, 2.0], [-INF, -INF, 0.0, -0.0, 0.0, INF, INF]])
INTS = torch.tensor([[3, -1, 3], [0, 7, 7]])
FLOATS = [X, X.bfloat16(), X.double(), SPECIAL, torch.tensor(2.5), torch.zeros(2, 0)]

CASES: list[Case] = (
    [(op, x, -1) for op in (aten.cumsum.default, aten.cumprod.default, aten.logcumsumexp.default) for x in FLOATS]
    + [
        (op, x, 0)
        for op in (aten.cumsum.default, aten.cumprod.default)
        for x in (X, INTS, INTS.to(torch.uint8), INTS > 0)
    ]
    + [(op, x, -1) for op in (aten.cummax.default, aten.cummin.default) for x in [*FLOATS[:-1], INTS, INTS > 0]]
    + [
        (aten.cumsum.default, INTS, 1, {"dtype": torch.float32}),
        (aten.logcumsumexp.default, X * 200, 0),
        (aten._logcumsumexp.default, X, 1),
        (aten.cummax.default, X, 0),
    ]
)


@pytest.mark.parametrize("case", CASES, ids=label)
def test_scan(case: Case) -> None:
    run(case)


def test_every_rule_has_a_case() -> None:
    assert not unexercised(scans, [*NAMED, *(case[0] for case in CASES)])


def test_a_long_float32_cumsum_stays_accurate() -> None:
    x = torch.rand(100_000, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(evaluate(aten.cumsum.default, x, 0).double(), x.double().cumsum(0), rtol=1e-6, atol=0)


@pytest.mark.parametrize("size", [1, 7, 90])
def test_the_loop_of_the_cpu_agrees_with_the_tree_of_other_platforms(size: int) -> None:
    x = torch.randn(size, generator=torch.Generator().manual_seed(0)).numpy()

    def both(x):
        return [scans.scan_along(jnp.add, x.astype("float64"), 0), *scans.cummax(x, 0)]

    results = []
    for platform in ("cpu", "tpu"):
        with jax.enable_x64(True), tracing(Context(platform=platform)):
            results.append(jax.jit(lambda x: both(x))(x))  # a function of its own: what was traced is kept by function
    for loop, tree in zip(*results):
        torch.testing.assert_close(*(torch.tensor(r.__array__()) for r in (loop, tree)))


def test_a_long_scan_runs_in_blocks() -> None:
    """Longer than what the CPU scans in one loop."""
    x = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    run((aten.cumsum.default, x.double(), 0))
    run((aten.cummax.default, x, 0))
