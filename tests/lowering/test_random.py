"""Random rules: laws by statistical tests, streams by construction. Seeds are fixed, so nothing is flaky."""

from __future__ import annotations

import math
from typing import Any

import pytest
import scipy.stats
import torch

from tests.lowering.agree import unexercised
from tests.lowering.evaluate import evaluate
from torus.backend.lowering import random

pytestmark = pytest.mark.slow

aten = torch.ops.aten

N = 20_000
LIKELY = 1e-4
"""Smallest p-value that passes: a right generator fails one test in ten thousand seeds."""

F32, F64 = torch.empty(N), torch.empty(N, dtype=torch.float64)
BF16, F16, I64 = F32.bfloat16(), F32.half(), torch.empty(N, dtype=torch.int64)
SEEDS = [(0, 0, 0, 0), (1, 0, 7, 0), (0xFFFFFFFF, 5, 0, 1)]

Exercised: set[Any] = set()


def draw(op: Any, *args: Any, seed: tuple[int, int, int, int] = (1, 0, 0, 0), **kwargs: Any) -> torch.Tensor:
    Exercised.add(op)
    return evaluate(op, *args, seed=seed, **kwargs)


def follows(values: torch.Tensor, law: Any) -> None:
    """Kolmogorov-Smirnov test of independent values against a continuous law."""
    assert scipy.stats.kstest(values.double().flatten().numpy(), law.cdf).pvalue > LIKELY


def occurs(values: torch.Tensor, expected: list[float]) -> None:
    """Chi-square test of the counts of 0, 1, 2, ... against expected frequencies."""
    counts = torch.bincount(values.long().flatten(), minlength=len(expected)).double()
    assert len(counts) == len(expected)
    weights = torch.tensor(expected, dtype=torch.float64)
    assert scipy.stats.chisquare(counts.numpy(), (weights / weights.sum() * counts.sum()).numpy()).pvalue > LIKELY


# --- streams


@pytest.mark.parametrize("seed", SEEDS, ids=str)
def test_every_seed_gives_uniform_bits(seed: tuple[int, int, int, int]) -> None:
    values = draw(aten.uniform.default, F32, seed=seed)
    follows(values, scipy.stats.uniform)
    for bit in (0, 1, 12, 22, 23):
        occurs((values * 2**24).long() >> bit & 1, [1, 1])


def test_the_same_seed_and_offset_repeat() -> None:
    assert torch.equal(draw(aten.normal_functional.default, F32), draw(aten.normal_functional.default, F32))


def test_seeds_and_offsets_give_unrelated_streams() -> None:
    streams = [
        draw(aten.uniform.default, F32, seed=seed)
        for seed in [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 4, 0), (0, 0, 0, 1)]
    ]
    correlation = torch.corrcoef(torch.stack(streams)) - torch.eye(len(streams))
    assert correlation.abs().max() < 5 / math.sqrt(N)
    blocks = torch.stack(streams).unfold(1, 4, 1).reshape(-1, 4)
    assert len(blocks.unique(dim=0)) == len(blocks)  # no stream is another one shifted


def test_neighbours_are_independent() -> None:
    pairs = (draw(aten.uniform.default, F32).reshape(-1, 2) * 8).long()
    occurs(pairs[:, 0] * 8 + pairs[:, 1], [1] * 64)


def test_the_parts_of_a_complex_number_are_independent() -> None:
    z = draw(aten.normal_functional.default, torch.empty(N, dtype=torch.complex64))
    for part in (z.real, z.imag):
        follows(part, scipy.stats.norm(scale=math.sqrt(0.5)))
    assert torch.corrcoef(torch.stack([z.real, z.imag]))[0, 1].abs() < 5 / math.sqrt(N)
    u = draw(aten.uniform.default, torch.empty(N, dtype=torch.complex64))
    assert torch.corrcoef(torch.stack([u.real, u.imag]))[0, 1].abs() < 5 / math.sqrt(N)


# --- continuous laws


@pytest.mark.parametrize("like", [F32, F64, F16, BF16], ids=lambda t: str(t.dtype))
def test_uniform(like: torch.Tensor) -> None:
    values = draw(aten.uniform.default, like, 0.0, 1.0)
    digits = {torch.float32: 24, torch.float64: 53, torch.float16: 11, torch.bfloat16: 8}[like.dtype]
    scaled = values.double() * 2.0**digits
    assert torch.equal(scaled, scaled.floor()) and values.min() >= 0 and values.max() < 1
    assert (scaled % 2).mean() == pytest.approx(0.5, abs=5 / math.sqrt(N))
    if digits > 11:  # a coarse grid is not a continuous law
        follows(draw(aten.uniform.default, like, -2.0, 3.0), scipy.stats.uniform(-2, 5))


def test_uniform_never_reaches_its_upper_bound() -> None:
    top = 1 + 2.0**-22
    values = draw(aten.uniform.default, F32, 1.0, top)
    assert values.min() >= 1 and values.max() < top
    values = draw(aten.uniform.default, BF16, 10.0, 11.0)
    assert values.min() >= 10 and values.max() < 11
    assert (draw(aten.uniform.default, F32, 2.0, 2.0) == 2).all()


@pytest.mark.parametrize("like", [F32, F64], ids=lambda t: str(t.dtype))
def test_continuous_laws(like: torch.Tensor) -> None:
    norm = scipy.stats.norm
    follows(draw(aten.normal_functional.default, like, 1.0, 2.0), norm(1, 2))
    follows(draw(aten.exponential.default, like, 2.0), scipy.stats.expon(scale=0.5))
    follows(draw(aten.cauchy.default, like, 1.0, 2.0), scipy.stats.cauchy(1, 2))
    follows(draw(aten.log_normal.default, like, 0.5, 0.75), scipy.stats.lognorm(s=0.75, scale=math.exp(0.5)))


def test_normal_in_every_form() -> None:
    norm = scipy.stats.norm
    mean, std = torch.linspace(-5, 5, N), torch.linspace(0.1, 3, N)
    follows(draw(aten.normal_.default, F32.clone(), -1.0, 0.5), norm(-1, 0.5))
    follows((draw(aten.normal.Tensor_Tensor, mean, std) - mean) / std, norm)
    follows(draw(aten.normal.Tensor_float, mean, 2.0) - mean, norm(0, 2))
    follows((draw(aten.normal.float_Tensor, 1.0, std) - 1) / std, norm)
    follows(draw(aten.normal.float_float, 1.0, 2.0, [N]), norm(1, 2))
    values = draw(aten.normal_functional.default, BF16)
    assert values.dtype == torch.bfloat16
    assert values.float().std() == pytest.approx(1, abs=0.03)


def test_normal_has_tails() -> None:
    values = draw(aten.normal_functional.default, torch.empty(1_000_000))
    assert values.isfinite().all()
    assert (values.abs() > 4).sum().item() == pytest.approx(63, abs=40)
    assert scipy.stats.kurtosis(values.double().numpy()) == pytest.approx(0, abs=0.03)


def test_exponential_is_never_zero() -> None:
    assert draw(aten.exponential.default, torch.empty(1_000_000)).min() > 0


# --- discrete laws


@pytest.mark.parametrize("like", [F32, BF16, I64, torch.empty(N, dtype=torch.bool)], ids=lambda t: str(t.dtype))
def test_bernoulli(like: torch.Tensor) -> None:
    for op in (aten.bernoulli_.float, aten.bernoulli.p):
        occurs(draw(op, like.clone(), 0.3), [0.7, 0.3])
    occurs(draw(aten.bernoulli.Tensor, like, torch.full((N,), 0.9)), [0.1, 0.9])


def test_bernoulli_at_its_ends() -> None:
    for p in (0.0, 1.0):
        assert (draw(aten.bernoulli_.float, torch.empty(1_000_000), p) == p).all()
    values = draw(aten.bernoulli.default, torch.tensor([0.0, 1.0, 0.25]).repeat(N, 1))
    assert (values[:, 0] == 0).all() and (values[:, 1] == 1).all()
    occurs(values[:, 2], [0.75, 0.25])
    tiny = draw(aten.bernoulli_.float, torch.empty(4_000_000), 2.0**-20)
    assert 0 < tiny.sum() < 15


@pytest.mark.parametrize("like", [F32, I64], ids=lambda t: str(t.dtype))
def test_geometric(like: torch.Tensor) -> None:
    values = draw(aten.geometric.default, like, 0.3).long()
    assert values.min() >= 1
    occurs(values.clamp(max=8) - 1, [0.3 * 0.7**k for k in range(7)] + [0.7**7])


def test_random_over_the_dtype() -> None:
    for dtype, top in [
        (torch.int64, 2**63),
        (torch.int32, 2**31),
        (torch.uint8, 256),
        (torch.int8, 128),
        (torch.bool, 2),
    ]:
        values = draw(aten.random.default, torch.empty(N, dtype=dtype)).double()
        assert values.min() >= 0
        occurs(values * 2 / top, [1, 1])
    values = draw(aten.random.default, F32).double()
    assert torch.equal(values, values.floor()) and values.max() <= 2**24
    occurs((values / 2**24).clamp(max=0.999) * 16, [1] * 16)


def test_random_in_a_range() -> None:
    occurs(draw(aten.random.to, I64, 7), [1] * 7)
    occurs(draw(aten.random.to, F32, 7), [1] * 7)
    values = draw(getattr(aten.random, "from"), I64, -3, 4)
    occurs(values + 3, [1] * 7)
    wide = draw(getattr(aten.random, "from"), I64, -(2**63), 2**63 - 1)
    occurs(wide.double() / 2**62 + 2, [1] * 4)
    unbounded = draw(getattr(aten.random, "from"), torch.empty(N, dtype=torch.uint8), 250, None)
    occurs(unbounded.long() - 250, [1] * 6)
    full = draw(getattr(aten.random, "from"), I64, -(2**63), None)
    occurs(full.double() / 2**62 + 2, [1] * 4)


def test_randperm() -> None:
    identity = torch.arange(N)
    first, second = (draw(aten.randperm.generator, N, generator=None, seed=(0, 0, i, 0)) for i in range(2))
    assert torch.equal(first.sort().values, identity) and first.dtype == torch.int64
    for a, b in ((first, identity), (first, second), (first[1:], first[:-1])):
        assert torch.corrcoef(torch.stack([a, b]).double())[0, 1].abs() < 5 / math.sqrt(N)
        assert (a == b).sum() < 10
    assert len(draw(aten.randperm.default, 0)) == 0


def test_multinomial() -> None:
    weights = torch.tensor([1.0, 0.0, 2.0, 5.0, 0.0])
    drawn = draw(aten.multinomial.default, weights, N, True)
    assert not torch.isin(drawn, torch.tensor([1, 4])).any()
    occurs(torch.bucketize(drawn, torch.tensor([1, 2])), [1, 2, 5])
    rows = draw(aten.multinomial.default, weights.repeat(N, 1), 3)
    assert torch.equal(rows.sort(dim=1).values, torch.tensor([0, 2, 3]).expand(N, 3))
    occurs(torch.bucketize(rows[:, 0].contiguous(), torch.tensor([1, 2])), [1, 2, 5])
    assert draw(aten.multinomial.default, weights.repeat(2, 1).double(), 6, True).shape == (2, 6)


# --- dropout


def test_dropout_keeps_the_mean() -> None:
    x = torch.ones(N)
    kept, mask = draw(aten.native_dropout.default, x, 0.25, True)
    occurs(mask, [0.25, 0.75])
    torch.testing.assert_close(kept, mask / 0.75)
    kept, mask = draw(aten._fused_dropout.default, x, 0.75)
    occurs(mask, [0.25, 0.75])
    torch.testing.assert_close(kept, mask / 0.75)


def test_dropout_at_its_ends() -> None:
    x = torch.ones(8)
    kept, mask = draw(aten.native_dropout.default, x, 1.0, True)
    assert not kept.any() and not mask.any()
    kept, mask = draw(aten.native_dropout.default, x, 0.5, False)
    assert torch.equal(kept, x) and mask.all()


@pytest.mark.parametrize(
    "op",
    [aten.rrelu_with_noise_functional.default, aten.rrelu_with_noise.default, aten.rrelu_with_noise_.default],
    ids=str,
)
def test_rrelu(op: Any) -> None:
    x, noise = torch.linspace(-1, 1, N), torch.zeros(N)
    result, slope = draw(op, x.clone(), noise, 0.1, 0.3, True)
    torch.testing.assert_close(result, x * slope)
    assert (slope[x > 0] == 1).all()
    follows(slope[x < 0], scipy.stats.uniform(0.1, 0.2))
    result, kept = draw(op, x.clone(), noise, 0.1, 0.3, False)
    torch.testing.assert_close(result, torch.nn.functional.leaky_relu(x, 0.2))
    assert torch.equal(kept, noise)


def test_every_rule_is_exercised() -> None:
    """Runs last, over what the tests above drew."""
    assert not unexercised(random, Exercised)
