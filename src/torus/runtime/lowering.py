"""From a Python function over arrays to StableHLO. The only module that imports the internals of JAX's tracer; it
imports JAX.

JAX's public path makes a new compiler context for each program, resolves shardings and annotates them; going straight
from the tracer to the module costs a tenth of that.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import jax
from jax._src import core, sharding_impls
from jax._src import linear_util as lu
from jax._src.interpreters import mlir, partial_eval
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import sdy

from torus.runtime import client
from torus.runtime.jaxlib_adapter import Aval, dtype
from torus.runtime.target import target

_CONTEXT_BYTES = 16 << 20
"""A compiler context keeps the constants of every program made in it; it is replaced after this much program text."""


class _Compiler(threading.local):
    """A compiler context for each thread; making one costs more than lowering an op."""

    def __init__(self) -> None:
        self._renew()

    def _renew(self) -> None:
        self._context, self.bytes = mlir.make_ir_context(), 0

    def context(self) -> Any:
        if self.bytes > _CONTEXT_BYTES:
            self._renew()
        return self._context


_compiler = _Compiler()
_parameters = mlir.LoweringParameters()


def _pinned_configuration() -> ExitStack:
    """What a program means must not depend on the user's JAX configuration, which stays as it is outside this block."""
    stack = ExitStack()
    stack.enter_context(jax.enable_x64(True))
    stack.enter_context(jax.numpy_dtype_promotion("standard"))
    stack.enter_context(jax.numpy_rank_promotion("allow"))
    stack.enter_context(jax.default_matmul_precision(None))
    stack.enter_context(jax.disable_jit(False))
    stack.enter_context(jax.debug_nans(False))
    return stack


def lower(fn: Callable[..., Any], avals: Sequence[Aval], device_index: int = 0) -> tuple[str, list[Aval]]:
    """Trace ``fn(*arrays)`` with 64-bit types on and give its StableHLO text and the avals of its results.

    `fn` returns one array or a flat list or tuple of arrays. The program's parameters are exactly `avals`, used or not.
    The text names neither functions nor source lines of `fn`, so equal programs have equal text. Raises ValueError for
    a program with side effects or callbacks, and whatever `fn` raises.
    """
    return lower_for(_device(device_index), fn, avals)


def _device(device_index: int) -> Any:
    """What programs of a device index are made for."""
    made_for = target()
    return client.device(device_index) if made_for is None else _Ahead(made_for.platform)


def lower_for(device: Any, fn: Callable[..., Any], avals: Sequence[Aval]) -> tuple[str, list[Aval]]:
    """`lower` for a PJRT device."""
    with _pinned_configuration():
        shaped = [core.ShapedArray(shape, dtype(name)) for shape, name in avals]
        jaxpr = _trace(fn, shaped)
        outs = [(tuple(out.shape), str(out.dtype)) for out in jaxpr.out_avals]
        return _module(jaxpr, shaped, device), outs


class _Ahead(NamedTuple):
    """Stands for a device that is not here; it is its own client."""

    platform: str

    @property
    def client(self) -> Any:
        return self


def lower_ahead(platform: str, fn: Callable[..., Any], avals: Sequence[Aval]) -> tuple[str, list[Aval]]:
    """`lower` for a platform of which no device need be here: the same text as with one."""
    return lower_for(_Ahead(platform), fn, avals)


def lower_any_size(
    fn: Callable[..., Any],
    avals: Sequence[tuple[tuple[int | str, ...], str]],
    limits: Sequence[str] = (),
    device_index: int = 0,
) -> tuple[str, list[tuple[tuple[int | str, ...], str]]]:
    """`lower` for sizes that vary: named ones, such as ``"batch"`` and ``"2*batch"``, in `avals` and in what it gives.

    `limits` are what is known of them, such as ``"batch <= 64"``; they are at least 1. `specialize` makes a program of
    the text's portable artifact. Raises what `fn` raises where it must know a size.
    """
    device = _device(device_index)
    with _pinned_configuration():
        scope = jax.export.SymbolicScope(limits)
        shapes = [jax.export.symbolic_shape(",".join(map(str, sizes)), scope=scope) for sizes, _ in avals]
        shaped = [jax.ShapeDtypeStruct(shape, dtype(name)) for shape, (_, name) in zip(shapes, avals)]
        export = jax.export.export(jax.jit(fn), platforms=("cuda" if device.platform == "gpu" else device.platform,))
        exported = export(*shaped)
        outs = [
            (tuple(s if isinstance(s, int) else str(s) for s in out.shape), str(out.dtype))
            for out in exported.out_avals
        ]
        with mlir.make_ir_context() as context:
            module = exported.mlir_module(serialized=False)
            module.operation.attributes["sym_name"] = ir.StringAttr.get("torus", context)
            return module.operation.get_asm(enable_debug_info=False), outs


def _trace(fn: Callable[..., Any], avals: list[Any]) -> Any:
    def flat(*arrays: Any) -> list[Any]:
        result = fn(*arrays)
        return list(result) if isinstance(result, (tuple, list)) else [result]

    names = tuple(f"arg{i}" for i in range(len(avals)))
    info = core.DebugInfo("torus", "torus", names, None)
    jaxpr, _, constants = partial_eval.trace_to_jaxpr_dynamic(lu.wrap_init(flat, debug_info=info), avals)
    if jaxpr.effects:
        raise ValueError(f"a program cannot have side effects; found {', '.join(map(str, jaxpr.effects))}")
    return core.ClosedJaxpr(jaxpr, constants)


def _module(jaxpr: Any, avals: list[Any], device: Any) -> str:
    context = mlir.ModuleContext(
        backend=device.client,
        platforms=("cuda" if device.platform == "gpu" else str(device.platform),),
        axis_context=sharding_impls.ShardingContext(1, (device,), None),
        keepalives=[],
        channel_iterator=itertools.count(1),
        host_callbacks=[],
        lowering_parameters=_parameters,
        context=_compiler.context(),
    )
    with context.context, ir.Location.unknown(context.context):
        attributes = context.module.operation.attributes
        attributes["sym_name"] = ir.StringAttr.get("torus")
        attributes["mhlo.num_replicas"] = attributes["mhlo.num_partitions"] = mlir.i32_attr(1)
        mlir.lower_jaxpr_to_fun(context, "torus", jaxpr, [], num_const_args=0, main_function=True, in_avals=avals)
        context.module.operation.verify()
    if context.host_callbacks or context.keepalives:
        raise ValueError("a program cannot call back into Python")
    text = str(context.module)
    _compiler.bytes += len(text)
    return text


def lower_sharded(
    fn: Callable[..., Any],
    avals: Sequence[Aval],
    *,
    platform: str,
    mesh: Mapping[str, int],
    specs: Sequence[Sequence[Sequence[str]]],
    result_specs: Sequence[Sequence[Sequence[str]] | None],
    donated: Sequence[bool],
    later: tuple[Sequence[bool], Sequence[bool]],
) -> tuple[str, list[Aval], list[str]]:
    """`lower` for a platform of which no device is here, split over a mesh {axis: size} by Shardy's annotations.

    specs: for each argument and each of its dimensions the axes over which it is split; `()` for a whole one.
    result_specs: the same for each result, or None where the compiler may choose. donated: arguments whose memory a
    result may take. later: arguments and results whose splitting yields where that of the others says something else:
    weights, which are gathered for a part of the batch. The third result has the name scope of each op of the main
    function.
    """
    with _pinned_configuration():
        grid = jax.sharding.AbstractMesh(tuple(mesh.values()), tuple(mesh)) if mesh else None

        def sharding(spec: Sequence[Sequence[str]] | None) -> Any:
            if grid is None or spec is None:
                return None
            return jax.sharding.NamedSharding(grid, jax.sharding.PartitionSpec(*(tuple(axes) or None for axes in spec)))

        def torus(*arrays: Any) -> tuple[Any, ...]:
            return tuple(fn(*arrays))

        given = [
            jax.ShapeDtypeStruct(shape, dtype(name), sharding=sharding(spec))
            for (shape, name), spec in zip(avals, specs, strict=True)
        ]
        jitted = jax.jit(
            torus,
            donate_argnums=tuple(i for i, free in enumerate(donated) if free),
            keep_unused=True,
            out_shardings=tuple(map(sharding, result_specs)) if grid is not None else None,
        )
        traced = jitted.trace(*given)
        with jax.default_device(client.device(0)):  # or JAX would start every platform that is installed, libtpu too
            module = traced.lower(lowering_platforms=(platform,)).compiler_ir("stablehlo")
        outs = [(tuple(out.shape), str(out.dtype)) for out in jax.tree.leaves(traced.out_info)]
        with module.context:
            main = ir.SymbolTable(module.operation)["main"]
            places = [_scope(op.location) for op in main.regions[0].blocks[0].operations]
            for name, which in zip(("arg_attrs", "res_attrs"), later):
                if grid is not None and any(which):
                    main.attributes[name] = _yielding(main.attributes[name], which)
            module.operation.attributes["sym_name"] = ir.StringAttr.get("torus")
            return module.operation.get_asm(enable_debug_info=False), outs, places


def _yielding(attributes: Any, which: Sequence[bool]) -> Any:
    """Attributes of arguments or results, the shardings of some with Shardy's second priority."""
    found = []
    for each, later in zip(attributes, which, strict=True):
        named = {one.name: one.attr for one in each}
        if later and "sdy.sharding" in named:
            old = sdy.TensorShardingAttr(named["sdy.sharding"])
            dimensions = [sdy.DimensionShardingAttr(dimension) for dimension in old.dimension_shardings]
            named["sdy.sharding"] = sdy.TensorShardingAttr.get(
                old.mesh_or_ref,
                [sdy.DimensionShardingAttr.get(d.axes, d.is_closed, 1 if len(d.axes) else None) for d in dimensions],
            )
        found.append(ir.DictAttr.get(named))
    return ir.ArrayAttr.get(found)


def split_first(array: Any, mesh: Mapping[str, int], axes: Sequence[str]) -> Any:
    """In what `lower_sharded` traces: the array, whose first dimension is split over `axes`, the others as need be."""
    grid = jax.sharding.AbstractMesh(tuple(mesh.values()), tuple(mesh))
    free = jax.sharding.PartitionSpec.UNCONSTRAINED
    spec = jax.sharding.PartitionSpec(tuple(axes), *(free for _ in array.shape[1:]))
    return jax.lax.with_sharding_constraint(array, jax.sharding.NamedSharding(grid, spec))


def _scope(location: Any) -> str:
    """The name scope in a location such as ``"jit(torus)/layers.0/jit(torus_op)"``, without what JAX adds to it."""
    name = location.name_str if isinstance(location, ir.NameLoc) else ""
    parts = name.split("/")[:-1]
    return "/".join(part for part in parts if not part.startswith(("jit(", "transpose(")))
