"""Draws by rejection: gamma, Dirichlet, Poisson and binomial numbers, through JAX's samplers.

Their key is one Philox word of the call, so these streams too depend on (seed, offset) and on nothing else.
"""

from __future__ import annotations

from typing import Any

from torus.backend.lowering.apply import check_values
from torus.backend.lowering.lazy import jax, jnp, lax
from torus.backend.lowering.random import random_bits
from torus.backend.lowering.reductions import widen
from torus.backend.lowering.registry import lowers


def _key(generator: Any) -> Any:
    return jax.random.wrap_key_data(random_bits(generator, (2,)), impl="threefry2x32")


def _gamma(alpha: Any, generator: Any) -> Any:
    """Not below the smallest normal number, which has a logarithm."""
    drawn = jax.random.gamma(_key(generator), alpha, alpha.shape, alpha.dtype)
    return jnp.maximum(drawn, jnp.finfo(alpha.dtype).tiny)


@lowers("aten::_standard_gamma")
def standard_gamma(alpha: Any, generator: Any) -> Any:
    return _gamma(widen(alpha), generator).astype(alpha.dtype)


@lowers("aten::_standard_gamma_grad")
def standard_gamma_grad(alpha: Any, drawn: Any) -> Any:
    """The derivative of a draw by `alpha`, at a fixed value of the distribution function."""
    return lax.random_gamma_grad(widen(alpha), widen(drawn)).astype(alpha.dtype)


@lowers("aten::_sample_dirichlet")
def sample_dirichlet(alpha: Any, generator: Any) -> Any:
    """Normalized in logarithms, so that small concentrations do not give 0 / 0."""
    dtype, alpha = alpha.dtype, widen(alpha)
    logarithms = jax.random.loggamma(_key(generator), alpha, alpha.shape, alpha.dtype)
    drawn = jax.nn.softmax(logarithms, -1)
    info = jnp.finfo(alpha.dtype)
    return jnp.clip(drawn, info.tiny, 1 - info.epsneg).astype(dtype)


@lowers("aten::poisson")
def poisson(rate: Any, generator: Any) -> Any:
    check_values(rate < 0, "invalid Poisson rate, expected rate to be non-negative")
    return jax.random.poisson(_key(generator), widen(rate), rate.shape, "int64")


@lowers("aten::binomial")
def binomial(count: Any, prob: Any, generator: Any) -> Any:
    shape = jnp.broadcast_shapes(count.shape, prob.shape)
    drawn = jax.random.binomial(_key(generator), widen(count), widen(prob), shape)
    return drawn.astype(count.dtype)
