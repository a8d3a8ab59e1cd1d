"""Draws by rejection follow their laws, and repeat for a seed."""

from __future__ import annotations

import pytest
import scipy.stats
import torch

from tests.lowering.evaluate import evaluate
from tests.lowering.test_random import LIKELY, N, follows

pytestmark = pytest.mark.slow

aten = torch.ops.aten


@pytest.mark.parametrize("alpha", [0.3, 1.0, 2.5, 50.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gamma(alpha: float, dtype: torch.dtype) -> None:
    values = evaluate(aten._standard_gamma.default, torch.full((N,), alpha, dtype=dtype))
    assert values.dtype == dtype
    follows(values, scipy.stats.gamma(alpha))


def test_dirichlet() -> None:
    values = evaluate(aten._sample_dirichlet.default, torch.tensor([0.5, 2.0, 3.0]).expand(N, 3).contiguous())
    torch.testing.assert_close(values.sum(-1), torch.ones(N))
    follows(values[:, 0], scipy.stats.beta(0.5, 5))


def matches(values: torch.Tensor, law: scipy.stats.rv_discrete) -> None:
    """Chi-square test of counts, the rare ones together."""
    places = [k for k in range(int(values.max()) + 1) if N * law.pmf(k) > 10]
    counts = [int((values == k).sum()) for k in places]
    expected = [N * law.pmf(k) for k in places]
    rest = [N - sum(counts)], [N - sum(expected)]
    assert scipy.stats.chisquare(counts + rest[0], expected + rest[1]).pvalue > LIKELY


@pytest.mark.parametrize("rate", [0.5, 3.0, 40.0])
def test_poisson(rate: float) -> None:
    matches(evaluate(aten.poisson.default, torch.full((N,), rate)), scipy.stats.poisson(rate))


@pytest.mark.parametrize(("count", "prob"), [(10.0, 0.3), (100.0, 0.6)])
def test_binomial(count: float, prob: float) -> None:
    values = evaluate(aten.binomial.default, torch.full((N,), count), torch.full((N,), prob))
    matches(values, scipy.stats.binom(int(count), prob))


def test_a_seed_repeats_and_another_does_not() -> None:
    rate = torch.full((100,), 3.0)
    first, again, other = (evaluate(aten.poisson.default, rate, seed=(s, 0, 0, 0)) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_gamma_gradient_is_that_of_the_quantile() -> None:
    alpha = torch.linspace(0.2, 6, 30, dtype=torch.float64)
    drawn = torch.linspace(0.1, 9, 30, dtype=torch.float64)
    level, step = scipy.stats.gamma.cdf(drawn.numpy(), alpha.numpy()), 1e-5
    high, low = (scipy.stats.gamma.ppf(level, alpha.numpy() + sign * step) for sign in (1, -1))
    expected = torch.from_numpy((high - low) / (2 * step))
    actual = evaluate(aten._standard_gamma_grad.default, alpha, drawn)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-6)
