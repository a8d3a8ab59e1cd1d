"""Random numbers: Philox counters, so that a stream depends on (seed, offset) and on nothing else.

Every call owns its offset. The counter of a call is ``offset << 32 | block``, so calls never overlap, whatever the step
between their offsets, and no call can use up its 2**34 words.
"""

from __future__ import annotations

import math
from typing import Any

from torus.backend.lowering.apply import cast, check_values
from torus.backend.lowering.dtypes import OPMATH
from torus.backend.lowering.elementwise import select
from torus.backend.lowering.lazy import jax, jnp, lax
from torus.backend.lowering.registry import Bounds, Order, OutSpec, lowers

# --- bits and uniform numbers


def random_bits(generator: Any, shape: tuple[int, ...], dtype: str = "uint32", stream: int = 0) -> Any:
    """Independent random words for one op call.

    generator: uint32[4] holding the low and high words of the seed and of the offset.
    stream: tells apart several draws within one call.
    """
    seed_low, seed_high, low, high = (generator[i] for i in range(4))
    seed_high = seed_high ^ (high * jnp.uint32(0x9E3779B9)) ^ jnp.uint32(stream * 0x85EBCA6B & 0xFFFFFFFF)
    key = jnp.stack([seed_low, seed_high, jnp.zeros_like(low), low])
    _, bits = lax.rng_bit_generator(key, shape, dtype, algorithm=lax.RandomAlgorithm.RNG_PHILOX)
    return bits


def _digits(dtype: str) -> int:
    """Bits of precision of a float dtype, the hidden one included."""
    return int(jnp.finfo(dtype).nmant) + 1


def _integers(generator: Any, shape: tuple[int, ...], digits: int, stream: int = 0) -> Any:
    """Uniform integers of `digits` bits, in floats that hold them exactly."""
    word, wide, kind = (32, "uint32", "float32") if digits <= 24 else (64, "uint64", "float64")
    return (random_bits(generator, shape, wide, stream) >> (word - digits)).astype(kind)


def uniform(generator: Any, shape: tuple[int, ...], dtype: str, stream: int = 0) -> Any:
    """Multiples of 2**-digits in [0, 1), with as many digits as `dtype` has; half precisions come as float32."""
    digits = _digits(dtype)
    return _integers(generator, shape, digits, stream) * 2.0**-digits


def _uniform_above_zero(generator: Any, shape: tuple[int, ...], dtype: str, stream: int = 0) -> Any:
    """The same grid in (0, 1], for logarithms; half precisions draw float32's 24 digits."""
    dtype = OPMATH.get(dtype, dtype)
    return 1 - uniform(generator, shape, dtype, stream)


def _open_unit(generator: Any, shape: tuple[int, ...], dtype: str, stream: int = 0) -> Any:
    """Odd multiples of 2**-digits in (-1, 1): symmetric, without 0 and the ends; float32 at least."""
    digits = _digits(OPMATH.get(dtype, dtype))
    return (2 * _integers(generator, shape, digits - 1, stream) + (1 - 2.0 ** (digits - 1))) * 2.0 ** (1 - digits)


def normal(generator: Any, shape: tuple[int, ...], dtype: str, stream: int = 0) -> Any:
    """Standard normal numbers through the inverse error function, computed in float32 or wider."""
    if dtype.startswith("complex"):
        part = "float32" if dtype == "complex64" else "float64"
        real, imag = (normal(generator, shape, part, stream + s) for s in (0, 1))
        return lax.complex(real, imag) * math.sqrt(0.5)
    return math.sqrt(2) * lax.erf_inv(_open_unit(generator, shape, dtype, stream))


def exponential(generator: Any, shape: tuple[int, ...], dtype: str, stream: int = 0) -> Any:
    """Standard exponential numbers, never 0."""
    u = _uniform_above_zero(generator, shape, dtype, stream)
    return jnp.maximum(-lax.log(u), float(jnp.finfo(u.dtype).eps) / 2)


def _compute(dtype: str) -> str:
    """Float dtype in which to work for results of `dtype`."""
    return OPMATH.get(dtype, dtype) if jnp.issubdtype(dtype, jnp.floating) else "float64"


# --- uniform


@lowers(
    "aten::uniform",
    wide=True,
    order=Order("from", "to", False, "uniform_ expects to return a [from, to) range"),
    fits=("from", "to"),
)
def uniform_(x: Any, low: Any = 0.0, high: Any = 1.0, *, generator: Any, out: OutSpec) -> Any:
    """Uniform in [low, high); a value that rounds up to `high` becomes `low`."""
    if out.dtype.startswith("complex"):
        part = out._replace(dtype="float32" if out.dtype == "complex64" else "float64")
        second = generator ^ jnp.asarray([0, 0x5BD1E995, 0, 0], "uint32")
        return lax.complex(
            *(cast(uniform_(x, low, high, generator=g, out=part), part.dtype) for g in (generator, second))
        )
    work = _compute(out.dtype)
    low, high = (cast(jnp.asarray(v), work) for v in (low, high))
    drawn = cast(low + uniform(generator, out.shape, out.dtype) * (high - low), out.dtype)
    low, high = cast(low, out.dtype), cast(high, out.dtype)
    return select((drawn >= high) & (low < high), low, drawn)


# --- normal and what is made from it


_STD = {"std": Bounds("normal expects std >= 0.0, but found std ", 0)}


@lowers("aten::normal_functional", "aten::normal_", bounds=_STD)
def normal_in_place(x: Any, mean: Any = 0.0, std: Any = 1.0, *, generator: Any, out: OutSpec) -> Any:
    """mean + std * standard normal."""
    return _scaled_normal(mean, std, generator, out)


@lowers("aten::normal.Tensor_Tensor", "aten::normal.Tensor_float", "aten::normal.float_Tensor", bounds=_STD)
def normal_of(mean: Any, std: Any = 1.0, *, generator: Any, out: OutSpec) -> Any:
    """mean + std * standard normal, element by element."""
    check_values(jnp.asarray(std) < 0, "normal expects all elements of std >= 0.0")
    return _scaled_normal(mean, std, generator, out)


@lowers("aten::normal.float_float", bounds=_STD)
def normal_sized(mean: Any, std: Any, size: list[int], *, generator: Any, out: OutSpec, **_: Any) -> Any:
    """mean + std * standard normal, of a given size."""
    return _scaled_normal(mean, std, generator, out)


def _scaled_normal(mean: Any, std: Any, generator: Any, out: OutSpec) -> Any:
    work = OPMATH.get(out.dtype, out.dtype)
    mean, std = (cast(jnp.asarray(v), work) for v in (mean, std))
    return mean + std * normal(generator, out.shape, out.dtype)


@lowers("aten::log_normal", bounds={"std": Bounds("log_normal_ expects std > 0.0, but found std=", 0, open=True)})
def log_normal(x: Any, mean: Any = 1.0, std: Any = 2.0, *, generator: Any, out: OutSpec) -> Any:
    """exp of a normal number."""
    return lax.exp(_scaled_normal(mean, std, generator, out))


# --- other continuous laws


@lowers(
    "aten::exponential", bounds={"lambd": Bounds("exponential_ expects lambda > 0.0, but found lambda=", 0, open=True)}
)
def exponential_(x: Any, lambd: Any = 1.0, *, generator: Any, out: OutSpec) -> Any:
    """Exponential with rate `lambd`."""
    drawn = exponential(generator, out.shape, out.dtype)
    return drawn / cast(jnp.asarray(lambd), str(drawn.dtype))


@lowers("aten::cauchy", bounds={"sigma": Bounds("cauchy_ expects sigma > 0.0, but found sigma=", 0, open=True)})
def cauchy(x: Any, median: Any = 0.0, sigma: Any = 1.0, *, generator: Any, out: OutSpec) -> Any:
    """median + sigma * tan(pi * u) with u uniform in (-1/2, 1/2)."""
    u = _open_unit(generator, out.shape, out.dtype)
    median, sigma = (cast(jnp.asarray(v), str(u.dtype)) for v in (median, sigma))
    return median + sigma * lax.tan(u * (math.pi / 2))


# --- discrete laws


@lowers(
    "aten::bernoulli.p",
    "aten::bernoulli_.float",
    wide=True,
    bounds={"p": Bounds("bernoulli_ expects p to be in [0, 1], but got p=", 0, 1)},
)
def bernoulli_p(x: Any, p: Any = 0.5, *, generator: Any, out: OutSpec) -> Any:
    """1 with probability p."""
    return _bernoulli(p, generator, out.shape)


@lowers("aten::bernoulli")
def bernoulli(p: Any, *, generator: Any, out: OutSpec) -> Any:
    """1 with the probability that each element holds."""
    check_values(~((p >= 0) & (p <= 1)), "Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
    return _bernoulli(p, generator, out.shape)


@lowers("aten::bernoulli.Tensor")
def bernoulli_tensor(x: Any, p: Any, *, generator: Any, out: OutSpec) -> Any:
    """1 with the probability that each element of `p` holds."""
    return _bernoulli(p, generator, out.shape)


def _bernoulli(p: Any, generator: Any, shape: tuple[int, ...]) -> Any:
    """Compares 32 random bits with p * 2**32, which is exact for every p that float32 holds."""
    p = jnp.asarray(p)
    p = p.astype("float32") if p.dtype.itemsize == 2 else p
    threshold = lax.ceil(jnp.clip(p, 0, 1) * 2.0**32)
    threshold = jnp.minimum(threshold.astype("uint64"), 2**32 - 1).astype("uint32")
    return (random_bits(generator, shape) < threshold) | (p >= 1)


@lowers(
    "aten::geometric",
    wide=True,
    bounds={"p": Bounds("geometric_ expects p to be in (0, 1), but got p=", 0, 1, open=True)},
)
def geometric(x: Any, p: Any, *, generator: Any, out: OutSpec) -> Any:
    """The number of trials up to the first success, by inverting the distribution."""
    u = _uniform_above_zero(generator, out.shape, _compute(out.dtype))
    return jnp.maximum(lax.ceil(lax.log(u) / cast(lax.log1p(-p), str(u.dtype))), 1)


@lowers("aten::random")
def random(x: Any, *, generator: Any, out: OutSpec) -> Any:
    """Every non-negative integer of an integer dtype; for floats every integer that they hold without gaps."""
    if out.dtype == "bool":
        return random_bits(generator, out.shape) >> 31
    bits = random_bits(generator, out.shape, "uint64")
    if jnp.issubdtype(out.dtype, jnp.floating):
        return lax.rem(bits, jnp.full_like(bits, 2 ** _digits(out.dtype) + 1))
    return bits & int(jnp.iinfo(out.dtype).max)


_LESS = "random_ expects 'from' to be less than 'to'"


@lowers("aten::random.to", runtime=("to",), bounds={"to": Bounds(f"{_LESS}, but got from=0 >= to=", 1)})
def random_to(x: Any, to: Any, *, generator: Any, out: OutSpec) -> Any:
    """Integers in [0, to)."""
    return _in_range(0, to, generator, out)


@lowers("aten::random.from", runtime=("from", "to"), order=Order("from", "to", True, _LESS))
def random_from(x: Any, low: Any, to: Any = None, *, generator: Any, out: OutSpec) -> Any:
    """Integers in [low, to); without `to` up to the largest that the dtype holds."""
    if to is not None:
        return _in_range(low, to, generator, out)
    is_float = jnp.issubdtype(out.dtype, jnp.floating)
    last = 2 ** _digits(out.dtype) if is_float else 1 if out.dtype == "bool" else int(jnp.iinfo(out.dtype).max)
    return _in_range(low, jnp.asarray(last, "uint64").astype("int64"), generator, out, inclusive=True)


def _in_range(low: Any, high: Any, generator: Any, out: OutSpec, inclusive: bool = False) -> Any:
    """64 random bits modulo the width, in wrapping arithmetic; a width of 2**64 shows as 0 and takes all bits."""
    low, high = (cast(jnp.asarray(v), "int64").astype("uint64") for v in (low, high))
    width = high - low + jnp.uint64(inclusive)
    bits = random_bits(generator, out.shape, "uint64")
    rest = lax.rem(bits, jnp.broadcast_to(jnp.maximum(width, 1), out.shape))
    drawn = low + select(width == 0, bits, rest)
    return drawn.astype("int64")


@lowers("aten::randperm", "aten::randperm.generator")
def randperm(n: int, *, generator: Any, out: OutSpec, **_: Any) -> Any:
    """A random order, by sorting 64-bit keys."""
    keys = random_bits(generator, (n,), "uint64")
    return lax.sort((keys, lax.iota("int32" if n < 2**31 else "int64", n)), num_keys=1)[1]


@lowers("aten::multinomial")
def multinomial(p: Any, num_samples: int, replacement: bool = False, *, generator: Any, out: OutSpec) -> Any:
    """Indices drawn with the weights of the last dimension, which need not sum to 1.

    Without replacement an exponential race orders all indices at once; with replacement the cumulative sum is searched.
    """
    categories = p.shape[-1]
    if not jnp.issubdtype(p.dtype, jnp.floating):
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {p.dtype}")
    if num_samples <= 0 or categories > 1 << 24 or (num_samples > categories and not replacement):
        raise RuntimeError(f"multinomial cannot draw {num_samples} of {categories} categories")
    check_values(~jnp.isfinite(p) | (p < 0), "probability tensor contains either `inf`, `nan` or element < 0")
    check_values(jnp.sum(p, -1) <= 0, "invalid multinomial distribution (sum of probabilities <= 0)")
    p = p.astype("float32") if p.dtype.itemsize == 2 else p
    if not replacement or num_samples == 1:
        return lax.top_k(p / exponential(generator, p.shape, str(p.dtype)), num_samples)[1]
    total = jnp.cumsum(p, -1)
    u = uniform(generator, out.shape, str(p.dtype)) * total[..., -1:]
    u = jnp.minimum(u, lax.nextafter(total[..., -1:], jnp.zeros_like(total[..., -1:])))

    def search(sums: Any, values: Any) -> Any:
        return jnp.searchsorted(sums, values, side="right")

    return search(total, u) if p.ndim == 1 else jax.vmap(search)(total, u)


# --- dropout and randomised activations


@lowers(
    "aten::native_dropout",
    wide=True,
    bounds={"p": Bounds("dropout probability has to be between 0 and 1, but got ", 0, 1)},
)
def native_dropout(x: Any, p: Any, train: bool | None, *, generator: Any) -> tuple[Any, Any]:
    """x / (1 - p) kept with probability 1 - p, and the mask; x itself outside training."""
    if train is False:
        return x, jnp.ones(x.shape, bool)
    return _dropout(x, 1 - p, generator)


@lowers("aten::_fused_dropout", wide=True)
def fused_dropout(x: Any, p: Any, *, generator: Any) -> tuple[Any, Any]:
    """x / p kept with probability `p`, and the mask."""
    return _dropout(x, p, generator)


def _dropout(x: Any, kept: Any, generator: Any) -> tuple[Any, Any]:
    keep = _bernoulli(kept, generator, x.shape)
    work = OPMATH.get(str(x.dtype), str(x.dtype))
    scale = cast(select(kept == 0, jnp.zeros((), "float64"), 1 / cast(kept, "float64")), work)
    return cast(x, work) * cast(keep, work) * scale, keep


@lowers("aten::rrelu_with_noise_functional", "aten::rrelu_with_noise_")
def rrelu(
    x: Any, noise: Any, lower: Any = 0.125, upper: Any = 1 / 3, training: bool = False, generator: Any = None
) -> tuple[Any, Any]:
    """x, scaled below zero by random slopes (their mean outside training), and the slopes."""
    dtype = str(x.dtype)
    work = OPMATH.get(dtype, dtype)
    x, lower, upper = (cast(jnp.asarray(v), work) for v in (x, lower, upper))
    if not training:
        return cast(select(x > 0, x, x * (lower + upper) / 2), dtype), noise
    slope = lower + uniform(generator, x.shape, work) * (upper - lower)
    slope = select(x > 0, jnp.ones((), work), slope)
    return cast(x * slope, dtype), cast(slope, str(noise.dtype))


lowers("aten::rrelu_with_noise", mutates=("noise",))(rrelu)
