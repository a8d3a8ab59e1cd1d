"""Rules of other packages: `register_rule` adds one for an op of theirs, or replaces one of this package's."""

from __future__ import annotations

import hashlib
import inspect
import marshal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torus import _C
from torus.backend.lowering import registry
from torus.backend.lowering.registry import Rule, lowers

_sources: dict[str, str] = {}
"""Op -> a hash of the code of its rule, for the rules that are not this package's own."""
_fingerprint = ""


def register_rule(*ops: Any, replace: bool = False, **declared: Any) -> Callable[[Callable[..., Any]], Any]:
    """Say in JAX what one or more ops compute on the device, in every mode: eager, fused and compiled.

    ops: names such as ``"mylib::swish"`` or ``"aten::add.Tensor"``, overloads such as
        ``torch.ops.mylib.swish.default``, or what PyTorch's `custom_op` returned.
    replace: take the place of a rule that is there.
    declared: what the rule declares, as for `torus.backend.lowering.registry.lowers`.

    The function takes the op's arguments in the order of its schema, tensors and `float` arguments as JAX arrays, and
    returns arrays. Sizes and dtypes of the results are those that the op's fake (meta) kernel promises. Programs made
    with an older text of the function's file are never used. Gradients are the op's own
    (PyTorch's `register_autograd`).

    Raises LookupError for an op that PyTorch does not know, ValueError for one that has a rule (unless `replace`) and
    for one that the device core does by itself (views, copies, new tensors).

        @torch.tpu.register_rule("mylib::swish")
        def swish(x, beta):
            return x * jax.nn.sigmoid(beta * x)
    """
    names = [_name(op) for op in ops]

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            _check(name, replace)
        previous = {name: registry.RULES.pop(name) for name in names if name in registry.RULES}
        try:
            lowers(*names, **declared)(fn)
        except BaseException:
            registry.RULES.update(previous)
            raise
        for name in names:
            tell_core(registry.RULES[name])
            _sources[name] = _source(fn)
        _forget_programs()
        return fn

    return register


def fingerprint() -> str:
    """A hash of all rules that are not this package's own; empty without any."""
    return _fingerprint


def tell_core(rule: Rule) -> bool:
    """Make the dispatcher call the device for the op of a rule; False when this PyTorch does not have it."""
    return bool(
        _C.register_rule(
            rule.name,
            sorted(rule.static),
            sorted(rule.runtime),
            {name: list(values) for name, values in rule.known.items()},
            rule.bounds,
            rule.order,
            sorted(rule.fits),
            list(rule.mutates),
            rule.wide,
            rule.host_tensors,
            rule.draws and not _has_generator(rule.name),
            rule.range_length,
        )
    )


def _has_generator(name: str) -> bool:
    """Whether an op has an argument for a generator; dropout has none. True where this PyTorch has no such op."""
    base, _, overload = name.partition(".")
    try:
        schema = torch._C._get_schema(base, overload)
    except RuntimeError:
        return True  # registering the rule reports it
    return any(argument.name == "generator" for argument in schema.arguments)


def _name(op: Any) -> str:
    op = getattr(op, "_opoverload", op)  # of a `CustomOpDef`
    if isinstance(op, torch._ops.OpOverloadPacket):
        op = op.default
    return op.name() if isinstance(op, torch._ops.OpOverload) else str(op)


def _check(name: str, replace: bool) -> None:
    base, _, overload = name.partition(".")
    try:
        torch._C._get_schema(base, overload)
    except RuntimeError:
        raise LookupError(f"PyTorch has no op {name}: define it first, and name its overload") from None
    rule = registry.RULES.get(name)
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1")
    if has_kernel if rule is None else not rule.eager:
        raise ValueError(
            f"{name} is done by the device core itself, or is a form of an op that has a rule: it cannot have its own"
        )
    if rule is not None and not replace:
        raise ValueError(
            f"{name} already has a rule, {rule.fn.__module__}.{rule.fn.__qualname__}; replace=True takes its place"
        )


def _source(fn: Callable[..., Any]) -> str:
    """A hash of what decides what `fn` computes: its file, or its code where there is none, and what it closes over."""
    code = fn.__code__
    try:
        text = Path(inspect.getfile(fn)).read_bytes()
    except (OSError, TypeError):
        text = marshal.dumps(code)
    closed = [cell.cell_contents for cell in fn.__closure__ or ()]
    parts = (text, repr((fn.__qualname__, code.co_firstlineno, fn.__defaults__, fn.__kwdefaults__, closed)).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _forget_programs() -> None:
    """Everything that may have been made with the rule that was replaced."""
    global _fingerprint
    import sys

    _fingerprint = hashlib.sha256(repr(sorted(_sources.items())).encode()).hexdigest()[:16]
    _C.clear_programs()
    for module, caches in _CACHES.items():
        for name in caches if module in sys.modules else ():
            getattr(sys.modules[module], name).cache_clear()


_CACHES = {
    "torus.backend.compile.nodes": ("parameters", "_traced"),
    "torus.backend.compile.backend": ("decompositions",),
}
