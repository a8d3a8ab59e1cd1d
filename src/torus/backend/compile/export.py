"""`torus.export`: a PyTorch module as a bundle, through torch.export and the rules that every other mode uses."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    SymIntArgument,
    TensorArgument,
)

from torus import bundle, runtime
from torus.backend.compile.backend import decompositions
from torus.backend.compile.export_dims import AnySize, Dims, names_of
from torus.backend.compile.export_values import Arrays, tree_of
from torus.backend.compile.graph import GraphFunction
from torus.backend.compile.nodes import find_rule
from torus.backend.compile.symbols import Bindings
from torus.backend.device import numerics
from torus.backend.eager.build import PRECISIONS
from torus.backend.lowering.apply import Context, tracing
from torus.backend.lowering.dtypes import to_name
from torus.backend.lowering.lazy import jnp
from torus.bundle import Bundle, BundleError, NewProgram, NewWeight, tree
from torus.runtime import target

_KINDS = {InputKind.PARAMETER: "parameter", InputKind.BUFFER: "buffer", InputKind.CONSTANT_TENSOR: "constant"}


def export(
    model: torch.nn.Module | ExportedProgram,
    args: tuple[Any, ...],
    path: str | PathLike[str],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    sizes: Sequence[Mapping[str, int]] | None = None,
    name: str | None = None,
    mutated_buffers: Literal["error", "output"] = "error",
    overwrite: bool = False,
) -> Bundle:
    """Write `model` to the folder `path` as a bundle, which runs without PyTorch and the model's code; the bundle.

    model: a module, on the CPU or on the device, or what `torch.export.export` gave. args, kwargs: example inputs, as
        torch.export takes them; Python numbers and flags among them become constants of the program. An exported
        program has its own: ``args=()`` keeps them.
    dynamic_shapes: which sizes vary, as torch.export takes it; one program then serves all of them. sizes: a program is
        made for each of these instead, such as ``[{"batch": 1}, {"batch": 8}]``, and other sizes are refused.
    name: of the model; by default its class. overwrite: replaces a bundle at `path`.
    mutated_buffers: a model that writes to its buffers, such as batch norm in training, is an error, or (``"output"``)
        returns ``{"result": ..., "buffers": {name: new value}}``.

    Raises BundleError for what a bundle cannot hold, CompileError, naming op and line, for what has no lowering,
    ValueError for sizes outside of their range, FileExistsError, and what torch.export raises.
    """
    if isinstance(model, ExportedProgram):
        program, names = model, {}
    else:
        program = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes)
        names = names_of(model, args, kwargs or {}, dynamic_shapes)
    functional = program.run_decompositions(_decompositions())
    _drop_idle(functional.graph)
    exported = _Export(functional, names, mutated_buffers)
    dims = exported.dims
    bundle.write(
        path,
        name=name or type(model).__name__,
        inputs=[dims.tensor(name, to_name(f.dtype), f.shape) for name, f in exported.inputs.items()],
        outputs=[dims.tensor(*output) for output in exported.outputs()],
        programs=exported.programs(sizes),
        weights=exported.weights(),
        result=exported.result,
        dims=dims.ranges(),
        versions={"torch": torch.__version__},
        overwrite=overwrite,
    )
    return Bundle.load(path, verify=False)


def _decompositions() -> dict[Any, Any]:
    """PyTorch's decompositions of what has no rule, of its composite ops too."""
    core = torch.export.default_decompositions().items()
    attention = {torch.ops.aten.scaled_dot_product_attention.default: _attention}
    return decompositions() | {op: fn for op, fn in core if find_rule(op) is None} | attention


def _attention(query: Any, key: Any, value: Any, mask: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Attention rounds its result only, as the fused kernels of every device do; PyTorch's formula rounds each step."""
    wide = torch.promote_types(query.dtype, torch.float32)
    if mask is not None:
        allowed = mask.dtype == torch.bool
        mask = torch.zeros_like(mask, dtype=wide).masked_fill(~mask, -torch.inf) if allowed else mask.to(wide)
    math = torch.ops.aten._scaled_dot_product_attention_math.default
    return math(query.to(wide), key.to(wide), value.to(wide), mask, *args, **kwargs)[0].to(query.dtype)


def _drop_idle(graph: torch.fx.Graph) -> None:
    """Take out the ops that return nothing, which check what tracing has settled, and the slices that take all."""
    for node in reversed(graph.nodes):
        if isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.returns:
            graph.erase_node(node)
        elif node.target is torch.ops.aten.slice.Tensor and _takes_all(*node.args):
            node.replace_all_uses_with(node.args[0])
    graph.eliminate_dead_code()


def _takes_all(source: Any, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> bool:
    return start in (None, 0) and (end is None or (isinstance(end, int) and end == sys.maxsize)) and step == 1


class _Export:
    """A functional program of ATen ops, taken apart: its inputs, weights and results."""

    def __init__(
        self, program: ExportedProgram, names: Mapping[tuple[str, int], str], mutated: Literal["error", "output"]
    ) -> None:
        self.source = program
        self.specs = program.graph_signature.input_specs
        self.fakes = [n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"]
        self.inputs = {
            spec.arg.name: fake
            for spec, fake in zip(self.specs, self.fakes)
            if spec.kind is InputKind.USER_INPUT and _is_tensor(spec)
        }
        self.dims = Dims(program, self.inputs, names)
        self.kept: list[int] = []
        self.result = self._result(mutated)
        if GraphFunction(program.graph_module).draws:
            raise BundleError("the model draws random numbers, and a program has none: call eval() before the export")

    def _result(self, mutated: str) -> tree.Tree:
        """The structure of what `run` returns; `kept` are the outputs of the graph that it has."""
        buffers, results = {}, []
        for place, spec in enumerate(self.source.graph_signature.output_specs):
            if spec.kind is OutputKind.USER_OUTPUT:
                results.append((place, spec.arg))
            elif spec.kind is OutputKind.BUFFER_MUTATION and mutated == "output":
                buffers[spec.target] = place
            else:
                hint = "call eval() before the export" if spec.kind is OutputKind.BUFFER_MUTATION else "copy it first"
                extra = ', or ask for its new value with mutated_buffers="output"' if "eval" in hint else ""
                raise BundleError(f"the model writes to {spec.target}, and a bundle has no state: {hint}{extra}")
        leaves = iter(results)
        result = tree_of(self.source.call_spec.out_spec, lambda: self._leaf(*next(leaves)))
        if not buffers:
            return result
        return {"dict": {"result": result, "buffers": {"dict": {n: self._keep(p) for n, p in buffers.items()}}}}

    def _leaf(self, place: int, argument: Any) -> tree.Tree:
        if isinstance(argument, ConstantArgument):
            return tree.constant(argument.value)
        return self._keep(place)

    def _keep(self, place: int) -> int:
        self.kept.append(place)
        return len(self.kept) - 1

    def outputs(self) -> list[tuple[str, str, tuple[Any, ...]]]:
        """Name, dtype and sizes of each output; a size that the model returns is an int64 without dimensions."""
        nodes = next(n for n in self.source.graph.nodes if n.op == "output").args[0]
        fakes = [nodes[place].meta["val"] for place in self.kept]
        names = tree.names(self.result, len(fakes))
        return [
            (name, to_name(f.dtype), tuple(f.shape)) if isinstance(f, torch.Tensor) else (name, _number_dtype(f), ())
            for name, f in zip(names, fakes)
        ]

    def weights(self) -> list[NewWeight]:
        """Parameters, buffers and constants, in the order of the graph's placeholders."""
        arrays, program = Arrays(), self.source
        found = []
        for spec in self._weight_specs():
            target = str(spec.target)
            values = program.state_dict[target] if target in program.state_dict else program.constants[target]
            found.append(NewWeight(target, arrays.of(values), _KINDS[spec.kind]))
        return found

    def _weight_specs(self) -> list[InputSpec]:
        for spec in self.specs:
            if spec.kind is not InputKind.USER_INPUT and spec.kind not in _KINDS:
                raise BundleError(f"the model has the {spec.kind.name.lower()} {spec.target}, which no bundle holds")
            if isinstance(spec.arg, SymIntArgument):
                raise BundleError(f"the input {spec.arg.name} is a number that varies; give it as a tensor")
        return [spec for spec in self.specs if spec.kind in _KINDS]

    def programs(self, sizes: Sequence[Mapping[str, int]] | None) -> list[NewProgram]:
        """One for each of `sizes`, or one for all that there can be. Raises CompileError and ValueError."""
        if sizes is not None:
            return [self._program(size) for size in sizes]
        return [self._any_size() if self.dims.limits() else self._program({})]

    def _program(self, sizes: Mapping[str, int]) -> NewProgram:
        bindings = self.dims.bind(sizes)
        avals = [(bindings.sizes(f.shape), to_name(f.dtype)) for f in self._tensors()]
        text, outs = runtime.lower(lambda *arrays: self._run(Bindings(), arrays), avals)
        return self._new_program(text, avals, outs, dict(sizes))

    def _any_size(self) -> NewProgram:
        avals = [(self.dims.tensor("", "", f.shape).sizes, to_name(f.dtype)) for f in self._tensors()]
        try:
            text, outs = runtime.lower_any_size(lambda *arrays: self._run(AnySize(), arrays), avals, self.dims.limits())
        except Exception as error:
            hint = ", ".join(f'"{name}": ...' for name in self.dims.ranges())
            raise BundleError(
                f"no program can be made for every size; give those that are needed, sizes=[{{{hint}}}]: {error}"
            ) from error
        return self._new_program(text, avals, outs, {})

    def _new_program(self, text: str, avals: Any, outs: Any, sizes: dict[str, int]) -> NewProgram:
        inputs = tuple(shape for shape, _ in avals[len(avals) - len(self.inputs) :])
        return NewProgram(text, inputs, tuple(shape for shape, _ in outs), target.platform_name(), sizes)

    def _tensors(self) -> list[Any]:
        """The fake tensors of weights and inputs."""
        return [fake for spec, fake in zip(self.specs, self.fakes) if _is_tensor(spec)]

    def _run(self, bindings: Bindings, arrays: Sequence[Any]) -> list[Any]:
        """The outputs that are kept, for the arrays of weights and inputs."""
        left = iter(arrays)
        arguments = [next(left) if _is_tensor(spec) else _constant(spec) for spec in self.specs]
        for fake, array in zip(self._tensors(), arrays):
            bindings.bind(fake, array.shape)
        precision = PRECISIONS[int(numerics.get_precision())]
        with tracing(Context(precision, target.platform_name())):
            results = GraphFunction(self.source.graph_module, bindings)(*arguments)
        return [jnp.asarray(results[place]) for place in self.kept]


def _is_tensor(spec: InputSpec) -> bool:
    return isinstance(spec.arg, TensorArgument)


def _constant(spec: InputSpec) -> Any:
    return spec.arg.value if isinstance(spec.arg, ConstantArgument) else None


def _number_dtype(number: Any) -> str:
    if isinstance(number, (bool, torch.SymBool)):
        return "bool"
    return "int64" if isinstance(number, (int, torch.SymInt)) else "float64"
