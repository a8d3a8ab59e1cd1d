"""Control flow and other operators that take graphs: cond, while_loop, scan, map, and calls of subgraphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torus.backend.compile import flex_attention as dense
from torus.backend.lowering.apply import Context, current, tracing
from torus.backend.lowering.lazy import jax, jnp, lax

_LOWERINGS: dict[str, Callable[..., Any]] = {}


def _lowers(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        _LOWERINGS.update(dict.fromkeys(names, fn))
        return fn

    return register


def lower(run: Any, node: Any) -> Any:
    """The results of a higher-order operator. Raises NotImplementedError for one that has no lowering."""
    name = node.target.name()
    if name not in _LOWERINGS:
        raise NotImplementedError(f"the operator {name} has no lowering for the tpu device")
    args = torch.fx.node.map_arg(node.args, lambda n: run.values[n])
    kwargs = torch.fx.node.map_arg(node.kwargs, lambda n: run.values[n])
    return _LOWERINGS[name](run, *args, **kwargs)


def function_of(run: Any, module: Any) -> Callable[..., Any]:
    """A subgraph as a function. Indices are not checked inside, where a report could not leave the control flow."""
    from torus.backend.compile.graph import GraphFunction

    graph = GraphFunction(module, run.bindings)

    def call(*arrays: Any) -> tuple[Any, ...]:
        context = current()
        with tracing(Context(context.precision, context.platform)):
            return tuple(jnp.asarray(o) for o in graph(*arrays))

    return call


@_lowers("cond")
def cond(run: Any, predicate: Any, true: Any, false: Any, operands: Any) -> list[Any]:
    """One of two subgraphs."""
    if isinstance(predicate, bool):
        return list(function_of(run, true if predicate else false)(*operands))
    chosen = jnp.asarray(predicate).reshape(()).astype(bool)
    return list(lax.cond(chosen, function_of(run, true), function_of(run, false), *operands))


@_lowers("while_loop")
def while_loop(run: Any, condition: Any, body: Any, carried: Any, additional: Any = ()) -> list[Any]:
    """A loop while a subgraph says so; what it carries keeps its sizes."""
    test, step = function_of(run, condition), function_of(run, body)
    start = tuple(jnp.asarray(c) for c in carried)

    def keep(state: Any) -> Any:
        return test(*state, *additional)[0].reshape(()).astype(bool)

    def advance(state: Any) -> Any:
        return tuple(n.astype(s.dtype) for n, s in zip(step(*state, *additional), state))

    return list(lax.while_loop(keep, advance, start))


@_lowers("scan")
def scan(run: Any, combine: Any, init: Any, xs: Any, additional: Any = ()) -> list[Any]:
    """A loop over the first dimension of `xs`: the last state, then what each turn gave, stacked."""
    step = function_of(run, combine)

    def turn(state: Any, x: Any) -> Any:
        results = step(*state, *x, *additional)
        return tuple(results[: len(state)]), tuple(results[len(state) :])

    state, ys = lax.scan(turn, tuple(init), tuple(xs))
    return [*state, *ys]


@_lowers("associative_scan")
def associative_scan(run: Any, combine: Any, xs: Any, additional: Any = ()) -> list[Any]:
    """All prefixes under an associative subgraph, along the first dimension."""
    step = function_of(run, combine)

    def merge(a: Any, b: Any) -> Any:
        return jax.vmap(lambda x, y: step(*x, *y, *additional))(a, b)

    return list(lax.associative_scan(merge, tuple(xs)))


@_lowers("map_impl")
def map_over(run: Any, body: Any, xs: Any, additional: Any = ()) -> list[Any]:
    """A subgraph for each element of the first dimension."""
    step = function_of(run, body)
    return list(lax.map(lambda x: step(*x, *additional), tuple(xs)))


@_lowers("invoke_subgraph")
def invoke_subgraph(run: Any, subgraph: Any, identifier: Any, *operands: Any) -> list[Any]:
    """A call of a subgraph that occurs more than once."""
    return list(function_of(run, subgraph)(*operands))


@_lowers("hints_wrapper")
def hints_wrapper(run: Any, body: Any, operands: Any, kwargs: Any, hints: Any = None) -> list[Any]:
    """A subgraph with remarks that change no value."""
    return list(function_of(run, body)(*operands))


@_lowers("with_effects")
def with_effects(run: Any, token: Any, op: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """An op that is kept in order by a token; here a check of a factorization, which raises after the run."""
    if op is not torch.ops.aten._linalg_check_errors.default:
        raise NotImplementedError(f"{op} has an effect, which a program cannot have")
    info, name = args[0].reshape(-1), args[1]
    context = current()
    if context.checks is not None and info.size:
        bad = info != 0
        report = jnp.stack([jnp.any(bad).astype("int64"), info[jnp.argmax(bad)].astype("int64")])
        context.checks.append((report, f"linalg:{name}: the factorization failed (info {{value}})"))
    return [token]


@_lowers("flex_attention")
def flex_attention(
    run: Any, query: Any, key: Any, value: Any, score_mod: Any, block_mask: Any, scale: Any, options: Any, *buffers: Any
) -> list[Any]:
    """Attention with a subgraph that changes the scores, and one that masks them."""
    functions = (function_of(run, score_mod), function_of(run, block_mask[-1]))
    return list(dense.attention(query, key, value, *functions, scale, *_two(buffers)))


@_lowers("flex_attention_backward")
def flex_attention_backward(
    run: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    log_sum: Any,
    grad_out: Any,
    grad_log_sum: Any,
    score_mod: Any,
    joint: Any,
    block_mask: Any,
    scale: Any,
    options: Any,
    *buffers: Any,
) -> list[Any]:
    """Its gradients, found anew from the subgraphs of the forward pass."""
    score_buffers, mask_buffers = _two(buffers)
    rest = (function_of(run, score_mod), function_of(run, block_mask[-1]), scale, mask_buffers)
    return list(dense.gradients(grad_out, grad_log_sum, (query, key, value), score_buffers, rest))


def _two(buffers: Any) -> tuple[Any, Any]:
    """The tensors that the function of scores and that of masks take, each () when left out."""
    return (*buffers, (), ())[:2]
