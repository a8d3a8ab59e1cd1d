"""Graphs as ops of the device: each has a name that says what it computes, and a rule that lowers it."""

from __future__ import annotations

import collections
import hashlib
import re
from collections.abc import Sequence
from typing import Any

import torch

from torus import _C, runtime
from torus.backend.compile.errors import CompileError
from torus.backend.compile.graph import GraphFunction, promised
from torus.backend.compile.inspect import CompiledProgram, report
from torus.backend.compile.options import Options
from torus.backend.compile.precision import noted
from torus.backend.compile.symbols import Bindings
from torus.backend.compile.tuning import fastest
from torus.backend.device import numerics
from torus.backend.eager.build import Builder, Plan
from torus.backend.eager.recipe import Recipe, convolution_options
from torus.backend.eager.request import Request
from torus.backend.eager.seam import GRAPH
from torus.backend.lowering.registry import Rule
from torus.runtime import target
from torus.runtime.counting import counters
from torus.runtime.programs import Program

_programs: dict[str, GraphProgram] = {}
made: collections.deque[CompiledProgram] = collections.deque(maxlen=1000)
"""What was compiled, or found in the cache by its text."""


class GraphProgram:
    """A graph that the core runs like an op; equal graphs are one. Kept as long as the process, as programs are."""

    def __init__(
        self, name: str, module: torch.fx.GraphModule, options: Options, symbols: Sequence[Any] | None
    ) -> None:
        self.name, self.module, self.options, self.symbols = name, module, options, symbols
        self.function = GraphFunction(module)
        self.fakes = [p.meta.get("val") for p in self.function.placeholders]
        self.results = [_fake(o) for o in _outputs(module.graph)]
        written = set(self.function.written)
        kinds = "".join(
            "s" if not isinstance(f, torch.Tensor) else "w" if p in written else "t"
            for p, f in zip(self.function.placeholders, self.fakes)
        )
        self.core = _C.Graph(name, kinds + "r" * len(symbols or ()), self.function.draws)

    def bindings(self, request: Request) -> Bindings:
        """The values of symbolic sizes in one call."""
        bindings = Bindings()
        for fake, (_, _, (kind, value)) in zip(self.fakes, request.args):
            if kind == "tensor":
                bindings.bind(fake, request.tensors[value].sizes)
            elif kind == "static" and value is not None:
                bindings.bind(fake, value)
        return bindings

    def rule(self, bindings: Bindings) -> Rule:
        """The graph as a rule, for the sizes of one call."""
        function = GraphFunction(self.module, bindings)
        if self.symbols is not None:
            from torus.backend.compile.dynamic.function import PaddedFunction

            function = PaddedFunction(self.module, bindings, self.symbols)
        mutates = tuple(f"arg{self.function.placeholders.index(p)}" for p in function.written)
        return Rule(
            self.name, function.__call__, None, frozenset(), frozenset(), False, mutates, True, False, False, False
        )


def program_of(module: torch.fx.GraphModule, options: Options, symbols: Sequence[Any] | None = None) -> GraphProgram:
    """The program of a graph; with `symbols` one for padded arguments, which takes the real values of them too."""
    text = f"{describe(module)} {options.key()} {symbols}"
    name = GRAPH + hashlib.sha256(text.encode()).hexdigest()[:32]
    if name not in _programs:
        _programs[name] = GraphProgram(name, module, options, symbols)
    return _programs[name]


def build_graph(key: bytes, request: Request, check_bounds: bool) -> tuple[Any, ...]:
    """Lower and compile a graph for the arguments of one call; what the core keeps of it.

    Raises CompileError, naming the op where it is known.
    """
    program = _programs[request.rule]
    try:
        recipe = _recipe(program, key, request, check_bounds and program.options.checks_indices)
        before = counters.compiles
        compiled = recipe.program(keep=program.options.serializable)
    except CompileError:
        raise
    except Exception as error:
        raise CompileError(f"{program.options.name or request.rule} cannot be compiled: {error}") from error
    shown = CompiledProgram(
        program.options.name or program.name,
        str(program.module.graph),
        recipe.text,
        counters.compiles > before,
        compiled.executable,
    )
    made.append(shown)
    report(shown, program.options.debug_callback)
    return recipe.answer()


def _recipe(program: GraphProgram, key: bytes, request: Request, check_bounds: bool) -> Recipe:
    bindings = program.bindings(request)
    promises = promised(program.results, bindings)
    builder = Builder(request, program.rule(bindings), promises, target.platform_name(), check_bounds)
    text, out_avals = runtime.lower(builder.function, builder.avals, request.device)
    options = numerics.compiler_options() | convolution_options(target.platform_name(), text)
    builder.plan.options = options | program.options.xla_options()
    text, builder.plan.donated = donate_written(text, builder.plan, request)
    if program.options.autotunes:

        def compile_with(options: dict[str, Any]) -> Program:
            return runtime.programs.get_or_compile(text, out_avals, request.device, options, keep=False)

        builder.plan.options = fastest(compile_with, builder.avals, request.device, builder.plan.options)
    return Recipe.lowered(key, request.device, builder.plan, text, out_avals)


def donate_written(text: str, plan: Plan, request: Request) -> tuple[str, list[int]]:
    """The program, in which a storage that is written gives its memory to its new value; the parameters that do."""
    donated = []
    results = [r for r in plan.results if r is not None]
    for place, result in enumerate(results):
        if result.writes < 0 or result.writes not in plan.inputs:
            continue
        layout = request.tensors[result.writes].layout
        shared = sum(request.tensors[i].slot == request.tensors[result.writes].slot for i in plan.inputs) > 1
        if shared or layout != (result.layout_dtype, tuple(result.layout_shape)):
            continue
        parameter = plan.inputs.index(result.writes)
        text = re.sub(
            rf"(%arg{parameter}: tensor<(?:[^<>]|<[^<>]*>)*>)",
            rf"\1 {{tf.aliasing_output = {place} : i32}}",
            text,
            count=1,
        )
        donated.append(parameter)
    return text, donated


def describe(module: torch.fx.GraphModule) -> str:
    """All that decides what a graph computes, in the same words in every process."""
    numbers = {node: i for i, node in enumerate(module.graph.nodes)}
    lines = []
    for node in module.graph.nodes:
        args = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: f"%{numbers[n]}")
        target = node.target if isinstance(node.target, str) else _name(node.target)
        if node.op == "placeholder":
            target = ""
        kind = _type(node.meta.get("val"))
        lines.append(f"%{numbers[node]} = {node.op} {target} {args!r} : {kind} {noted(node) or ''}")
        if node.op == "get_attr":
            inner = getattr(module, node.target, None)
            if isinstance(inner, torch.fx.GraphModule):
                lines.append("{" + describe(inner) + "}")
    return "\n".join(lines)


def _name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return target.name()
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', target)}"


def _type(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{list(value.shape)}{list(value.stride())}{value.device.type}"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(_type(v) for v in value) + ")"
    return str(value)


def _outputs(graph: Any) -> list[Any]:
    output = next(n for n in graph.nodes if n.op == "output").args[0]
    return list(output) if isinstance(output, (list, tuple)) else [output]


def _fake(output: Any) -> Any:
    return output.meta.get("val") if isinstance(output, torch.fx.Node) else output
