"""From a signature to the function that JAX traces: unpack the arguments, call the rule, lay out the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torus.backend.eager.memory_format import keep_channels_last
from torus.backend.eager.request import Promise, Request, Result, ScalarArg, TensorArg
from torus.backend.eager.strides import as_on_cpu
from torus.backend.lowering import strided
from torus.backend.lowering.apply import Context, Operand, apply, cast, tracing
from torus.backend.lowering.dtypes import from_name, to_name
from torus.backend.lowering.lazy import jnp, lax
from torus.backend.lowering.registry import OutSpec, Rule

PRECISIONS = ("default", "high", "highest", "bf16", "bf16x3")
"""By the number that the core has for them; see `torus.backend.lowering.passes` for the last two."""


@dataclass
class Plan:
    """What tracing found out about a program beside its text.

    donated: parameters whose memory goes to a result. options: the compiler's; None: those of a single op.
    """

    inputs: list[int]
    takes_pack: bool
    results: list[Result | None] = field(default_factory=list)
    counts: list[int | tuple[int]] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    cost: int = 1
    donated: list[int] = field(default_factory=list)
    options: dict[str, Any] | None = None


class Builder:
    """Traces one request. `promises` are PyTorch's metadata of the functional results, None when it has none for this
    op.

    `function` is what JAX traces over `avals`; it fills in `plan`.
    """

    def __init__(self, request: Request, rule: Rule, promises: list[Any] | None, platform: str, check_bounds: bool):
        self.request = request
        self.rule = rule
        self.promises = as_on_cpu(request, rule, promises)
        self.context = Context(PRECISIONS[request.precision], platform, check_bounds, [])
        inputs = [i for i, tensor in enumerate(request.tensors) if tensor.layout is not None and self._reads(i)]
        self.plan = Plan(inputs, request.pack_words > 0)

    @property
    def avals(self) -> list[tuple[tuple[int, ...], str]]:
        """Shape and dtype of each parameter: the storages, then the pack of scalars."""
        layouts = [self.request.tensors[i].layout for i in self.plan.inputs]
        avals = [(shape, to_name(dtype)) for dtype, shape in (x for x in layouts if x is not None)]
        return [*avals, ((self.request.pack_words,), "uint32")] if self.plan.takes_pack else avals

    def function(self, *arrays: Any) -> list[Any]:
        """The program: storages and pack in; new tensors' arrays, new values of storages, and index reports out."""
        with tracing(self.context):
            self.context.checks = []
            pack = arrays[-1] if self.plan.takes_pack else None
            call = _Call(self.request, dict(zip(self.plan.inputs, arrays)), pack)
            values = self._apply(call)
            stored = self._store(call, values)
        reports, self.plan.checks = [r for r, _ in self.context.checks], [m for _, m in self.context.checks]
        return stored + reports

    def _reads(self, index: int) -> bool:
        """False for an out= tensor that is overwritten whole."""
        return index in self._arguments() or not _covers(self.request.tensors[index])

    def _arguments(self) -> set[int]:
        return {v for _, _, encoded in self.request.args for v in _tensor_indices(encoded)}

    def _written(self) -> list[int]:
        """In the order of the rule's results: out= tensors come before those that the rule also reads."""
        arguments = self._arguments()
        return sorted((i for i, t in enumerate(self.request.tensors) if t.written), key=arguments.__contains__)

    def _fresh(self) -> list[Promise | None]:
        """Promises of the results that are new tensors, flattened; fills in the lengths of lists."""
        promises = self.promises or []
        self.plan.counts = [_count(p) for p in promises]
        tensors = [p for p in promises if not isinstance(p, int)]
        return [Promise(*p) if p is not None else None for entry in tensors for p in _as_list(entry)]

    def _apply(self, call: _Call) -> list[Any]:
        given = [(name, keyword, self._argument(call, name, encoded)) for name, keyword, encoded in self.request.args]
        positional = [value for _, keyword, value in given if not keyword]
        named = {name: value for name, keyword, value in given if keyword}
        if self.request.random_word >= 0 and not any(e[0] == "random" for _, _, e in self.request.args):
            named["generator"] = call.random_state()
        if self.promises is None:
            specs = [OutSpec(t.sizes, to_name(t.dtype)) for t in (self.request.tensors[i] for i in self._written())]
            if self.rule.mutates and not self.request.op.startswith("aten::_copy_from"):
                specs = []
        else:
            specs = [
                OutSpec(tuple(p.sizes), to_name(p.dtype)) if p else OutSpec((0,), "float32") for p in self._fresh()
            ]
        nested: list[Any] = []
        values = apply(self.rule, positional, named, specs, nested)
        if self.promises is None and not self._written():
            one_list = _returns_one_list(self.request.op)
            self.plan.counts = [len(values)] if one_list else [_length(r) for r in nested]
        return values

    def _argument(self, call: _Call, name: str, encoded: tuple[str, Any]) -> Any:
        kind, value = encoded
        if name not in self.rule.known or kind not in ("usual", "list"):
            return call.argument(encoded)
        return value[1] if kind == "usual" else [self._argument(call, name, v) for v in value]

    def _store(self, call: _Call, values: list[Any]) -> list[Any]:
        written = self._written()
        fresh_count = len(values) - len(written) if self.rule.mutates else (0 if written else len(values))
        if self.rule.mutates:
            values = values[:fresh_count] + [v for v in values[fresh_count:] if v is not None]
        promises = self._fresh() if self.promises is not None else [_contiguous(v) for v in values[:fresh_count]]
        stored = []
        self.plan.results = []
        for value, promise in zip(values[:fresh_count], keep_channels_last(self.request, promises)):
            if value is None or promise is None:
                self.plan.results.append(None)
            else:
                array, result = _lay_out(value, promise)
                stored.append(array)
                self.plan.results.append(result)
        for index, value in zip(written, values[fresh_count:], strict=True):
            call.write(index, value)
        for slot, index in {self.request.tensors[i].slot: i for i in written}.items():
            array = call.storages[slot]
            tensor = self.request.tensors[index]
            stored.append(array)
            self.plan.results.append(
                Result(
                    tensor.dtype, tensor.sizes, tensor.strides, from_name(str(array.dtype)), tuple(array.shape), index
                )
            )
        return stored


class _Call:
    """The traced arguments of one call."""

    def __init__(self, request: Request, arrays: dict[int, Any], pack: Any):
        self.request = request
        self.pack = pack
        self.arrays = arrays
        self.storages: dict[int, Any] = {}

    def argument(self, encoded: tuple[str, Any]) -> Any:
        kind, value = encoded
        if kind == "tensor":
            tensor = self.request.tensors[value]
            return Operand(self.read(value), 2 if tensor.sizes else 1)
        if kind == "scalar":
            return self.number(self.request.scalars[value])
        if kind == "usual":
            dtype, number = value
            return Operand(jnp.asarray(number, "bool" if isinstance(number, bool) else to_name(dtype)), 0)
        if kind == "list":
            return [self.argument(v) for v in value]
        return self.random_state() if kind == "random" else value

    def number(self, scalar: ScalarArg) -> Operand:
        array = self._unpack(scalar.word, scalar.kind, to_name(scalar.packed))
        if scalar.kind == "int":
            array = lax.convert_element_type(array, "int64")
        if scalar.dtype is not None:
            return Operand(cast(array, to_name(scalar.dtype)), 1)
        return Operand(array, 0)

    def random_state(self) -> Operand:
        word = self.request.random_word
        return Operand(self.pack[word : word + 4], 2)

    def read(self, index: int) -> Any:
        tensor = self.request.tensors[index]
        if tensor.layout is None:
            return jnp.zeros(tensor.sizes, to_name(tensor.dtype))
        if _is_array(tensor):
            return self.arrays[index]
        flat = strided.flatten_as(self.arrays[index], to_name(tensor.dtype))
        return strided.read(flat, tensor.view, self._offset(tensor))

    def write(self, index: int, value: Any) -> None:
        """Give the storage of tensor `index` the value it has after `value` was written through the tensor."""
        tensor = self.request.tensors[index]
        dtype = to_name(tensor.dtype)
        value = jnp.broadcast_to(cast(value, dtype), tensor.sizes)
        order = tensor.view.memory_order()
        if order is not None and _covers(tensor):
            self.storages[tensor.slot] = jnp.transpose(value, order)
            return
        old = self.storages.get(tensor.slot)
        if old is None:
            old = self.arrays.get(index) if tensor.layout is not None else None
        if old is None:
            old = jnp.zeros(tensor.storage_numel, dtype)
        flat = strided.write(strided.flatten_as(old, dtype), tensor.view, self._offset(tensor), value)
        # Keep the array's own form, so that in-place loops keep their signature.
        same = str(old.dtype) == dtype
        self.storages[tensor.slot] = flat.reshape(old.shape) if same else flat

    def _offset(self, tensor: TensorArg) -> Any:
        if tensor.offset_word < 0:
            return None
        words = 1 if tensor.storage_numel < 2**31 else 2
        return self._integer(tensor.offset_word, words)

    def _integer(self, word: int, words: int) -> Any:
        if words == 1:
            return lax.bitcast_convert_type(self.pack[word], "int32")
        # No 64-bit number is reinterpreted: TPUs have none, and XLA:CPU would not fuse it.
        low = lax.convert_element_type(self.pack[word], "uint64")
        high = lax.convert_element_type(self.pack[word + 1], "uint64")
        return lax.bitcast_convert_type(low | (high << jnp.uint64(32)), "int64")

    def _unpack(self, word: int, kind: str, packed: str) -> Any:
        if kind == "int":
            return self._integer(word, 2 if packed == "int64" else 1)
        if kind == "bool":
            return self.pack[word] != 0
        real = self._real(word, packed)
        if kind == "complex":
            return lax.complex(real, self._real(word + (1 if packed == "float32" else 2), packed))
        return real

    def _real(self, word: int, packed: str) -> Any:
        if packed == "float32":
            return lax.bitcast_convert_type(self.pack[word], "float32")
        return lax.bitcast_convert_type(self.pack[word : word + 2], "float64")


def _is_array(tensor: TensorArg) -> bool:
    """Whether the array of its storage is the tensor as it stands."""
    order = list(range(len(tensor.sizes)))
    return tensor.layout == (tensor.dtype, tensor.sizes) and _covers(tensor) and tensor.view.memory_order() == order


def _covers(tensor: TensorArg) -> bool:
    """Whether the tensor is the whole of its storage, each element once."""
    return tensor.view.numel * tensor.dtype.itemsize == tensor.storage_nbytes and tensor.view.memory_order() is not None


def _tensor_indices(encoded: tuple[str, Any]) -> list[int]:
    kind, value = encoded
    if kind == "list":
        return [i for v in value for i in _tensor_indices(v)]
    return [value] if kind == "tensor" else []


def _count(promise: Any) -> int | tuple[int]:
    """What the core must know of a new result: -1 for a tensor, n for a list of n tensors, (k,) for the number k."""
    if isinstance(promise, int):
        return (promise,)
    return len(promise) if isinstance(promise, list) else -1


def _length(result: Any) -> int:
    """What `_count` says of a result that a rule returned."""
    return len(result) if isinstance(result, (list, tuple)) else -1


def _returns_one_list(op: str) -> bool:
    """Whether the schema says so, for ops that have no meta kernel to count it."""
    name, _, overload = op.partition(".")
    return [str(result.type) for result in torch._C._get_schema(name, overload).returns] == ["List[Tensor]"]


def _as_list(entry: Any) -> Sequence[Any]:
    return entry if isinstance(entry, list) else [entry]


def _contiguous(value: Any) -> Promise | None:
    if value is None:
        return None
    strides, step = [0] * value.ndim, 1
    for dim in reversed(range(value.ndim)):
        strides[dim] = step
        step *= max(1, value.shape[dim])
    return Promise(from_name(str(value.dtype)), tuple(value.shape), tuple(strides))


def _lay_out(value: Any, promise: Promise) -> tuple[Any, Result]:
    """The array behind a new tensor: its elements in the order of the promised strides."""
    view = strided.View(promise.sizes, promise.strides)
    order = view.memory_order() if view.numel else list(range(value.ndim))
    if order is None:
        # PyTorch promises strides with gaps or overlaps; a new tensor of ours is dense.
        promise = _contiguous(value) or promise
        order = list(range(value.ndim))
    array = jnp.transpose(value, order) if order != list(range(len(order))) else value
    return array, Result(*promise, promise.dtype, tuple(array.shape), -1)


BuildFunction = Callable[..., list[Any]]
