"""What the core does without a program in eager mode, as rules for compiled graphs: views, copies, new tensors.

Views have rules already, under the names of their copying forms; `VIEWS` says which.
"""

from __future__ import annotations

from typing import Any

from torus.backend.lowering import random, strided
from torus.backend.lowering.apply import cast
from torus.backend.lowering.lazy import jnp
from torus.backend.lowering.registry import OutSpec, lowers

VIEWS = {
    f"aten::{name}": f"aten::{base}_copy{overload}"
    for name, base, overload in (
        (full, full.partition(".")[0], "".join(full.partition(".")[1:]))
        for full in (
            "alias detach diagonal expand permute select.int slice.Tensor split.Tensor split_with_sizes squeeze "
            "squeeze.dim squeeze.dims t transpose.int unbind.int unfold unsqueeze view view.dtype view_as_complex "
            "view_as_real _conj _neg_view"
        ).split()
    )
} | {
    "aten::_unsafe_view": "aten::view_copy",
    "aten::_reshape_copy": "aten::view_copy",
    "prims::where": "aten::where.self",
}
"""A view, or another name of an op -> the rule that computes it."""


@lowers(
    "aten::_to_copy",
    "aten::clone",
    "aten::copy",
    "aten::contiguous",
    "aten::lift",
    "aten::lift_fresh",
    "prims::convert_element_type",
    "prims::device_put",
    "prims::clone",
    eager=False,
)
def converted(x: Any, source: Any = None, *_: Any, out: OutSpec, **__: Any) -> Any:
    """The values of `x` (of `source`, when there is one) in the promised dtype and sizes."""
    values = x if source is None or not hasattr(source, "dtype") or not hasattr(source, "ndim") else source
    return jnp.broadcast_to(cast(values, out.dtype), out.shape)


@lowers("aten::_reshape_alias", eager=False)
def reshape_alias(x: Any, size: Any, stride: Any, *, out: OutSpec) -> Any:
    """The elements in other sizes."""
    return x.reshape(out.shape)


@lowers(
    "aten::empty.memory_format",
    "aten::empty_strided",
    "aten::empty_like",
    "aten::empty_permuted",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::new_zeros",
    "aten::zeros",
    "aten::zeros_like",
    "prims::empty_strided",
    eager=False,
)
def zeros(*_: Any, out: OutSpec, **__: Any) -> Any:
    """Zeros, which is also what an uninitialised tensor holds."""
    return jnp.zeros(out.shape, out.dtype)


@lowers("aten::ones", "aten::ones_like", "aten::new_ones", eager=False)
def ones(*_: Any, out: OutSpec, **__: Any) -> Any:
    """Ones."""
    return jnp.ones(out.shape, out.dtype)


@lowers("aten::full", "aten::full_like", "aten::new_full", wide=True, fits=("fill_value",), eager=False)
def full(like: Any, value: Any, *rest: Any, out: OutSpec, **_: Any) -> Any:
    """One value everywhere; `new_full` has the sizes before it."""
    value = rest[0] if rest and hasattr(rest[0], "dtype") else value
    return jnp.broadcast_to(cast(jnp.asarray(value), out.dtype), out.shape)


@lowers("aten::scalar_tensor", wide=True, fits=("s",), eager=False)
def scalar_tensor(value: Any, *, out: OutSpec, **_: Any) -> Any:
    """A number as a tensor without dimensions."""
    return cast(jnp.asarray(value), out.dtype)


@lowers("aten::as_strided", eager=False)
def as_strided(x: Any, size: Any, stride: Any, storage_offset: int | None = None, *, out: OutSpec) -> Any:
    """Any view of the elements of `x` in their own order; a graph's tensors have storages without gaps."""
    return strided.read(x.reshape(-1), strided.View(tuple(size), tuple(stride)), storage_offset or 0)


@lowers("aten::as_strided_scatter", eager=False)
def as_strided_scatter(x: Any, source: Any, size: Any, stride: Any, storage_offset: int | None = None) -> Any:
    """`x` with `source` written to a view of it."""
    view = strided.View(tuple(size), tuple(stride))
    values = jnp.broadcast_to(cast(source, str(x.dtype)), tuple(size))
    return strided.write(x.reshape(-1), view, storage_offset or 0, values).reshape(x.shape)


@lowers("prims::fma", promote="result", eager=False)
def fused_multiply_add(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, into which Dynamo turns `addcmul_` and others that have a `value`."""
    return a * b + c


# --- random tensors: in eager mode an empty one that is then filled


@lowers("aten::rand", "aten::rand_like", "aten::rand.generator", eager=False)
def rand(*_: Any, generator: Any, out: OutSpec, **__: Any) -> Any:
    """Uniform in [0, 1)."""
    return random.uniform_(None, 0.0, 1.0, generator=generator, out=out)


@lowers("aten::randn", "aten::randn_like", "aten::randn.generator", eager=False)
def randn(*_: Any, generator: Any, out: OutSpec, **__: Any) -> Any:
    """Standard normal."""
    return random.normal_in_place(None, 0.0, 1.0, generator=generator, out=out)


@lowers("aten::randint", "aten::randint.generator", eager=False)
def randint(high: int, *_: Any, generator: Any, out: OutSpec, **__: Any) -> Any:
    """Integers in [0, high)."""
    return random.random_to(None, high, generator=generator, out=out)


@lowers("aten::randint.low", "aten::randint.low_generator", eager=False)
def randint_from(low: int, high: int, *_: Any, generator: Any, out: OutSpec, **__: Any) -> Any:
    """Integers in [low, high)."""
    return random.random_from(None, low, high, generator=generator, out=out)


@lowers("aten::randint_like", eager=False)
def randint_like(like: Any, high: int, *, generator: Any, out: OutSpec, **_: Any) -> Any:
    """Integers in [0, high), in the sizes of another tensor."""
    return random.random_to(None, high, generator=generator, out=out)


@lowers("aten::randint_like.low_dtype", eager=False)
def randint_like_from(like: Any, low: int, high: int, *, generator: Any, out: OutSpec, **_: Any) -> Any:
    """Integers in [low, high), in the sizes of another tensor."""
    return random.random_from(None, low, high, generator=generator, out=out)
