"""A compiled graph as AOTAutograd calls it: CPU tensors are lifted in, results go where PyTorch expects them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from torus.backend.compile.background import Background
from torus.backend.compile.dynamic.program import PaddedProgram, number_of, symbols_of
from torus.backend.compile.errors import CompileError, CompileWarning
from torus.backend.compile.options import Options
from torus.backend.compile.precision import op_by_op
from torus.backend.compile.programs import program_of
from torus.backend.compile.split import Source, on_host, split

_LARGE = 1 << 20
"""Bytes from which a CPU tensor that is sent to the device in each call is worth a warning."""


class Region:
    """One graph. Calling it with the list of its arguments gives the list of its outputs."""

    def __init__(self, module: torch.fx.GraphModule, options: Options, seen: int | None = None) -> None:
        """`seen`: so many of the outputs are the user's (None: all), the others are kept for the backward pass."""
        self.module, self.options = module, options
        self._boxed_call = True  # AOTAutograd's word for "takes a list, which it may empty"
        self.split = parts = split(module)
        self.program = program_of(parts.device, options)
        self.run = self.program.core.run
        self.padded = bool(symbols_of(parts.device))
        if self.padded:
            visible = {s.number for s in parts.outputs[:seen] if s.kind == "device"}
            self.run = PaddedProgram(parts.device, options, 1 + max(visible, default=-1)).run
        self.forwards = [s.number for s in parts.inputs] if all(s.kind == "argument" for s in parts.inputs) else None
        plain = parts.outputs == [Source("device", i) for i in range(len(parts.outputs))] and not parts.writes
        self.direct = plain and parts.host is None and self.forwards is not None
        """Whether the device does it all."""
        self.idle = not any(n.op == "call_function" for n in parts.device.graph.nodes)
        """Whether the device does nothing of it."""
        self.background: Background | None = None
        if options.async_compile and not self.padded and not self.idle:
            self.background = Background(self.program.core.prepare)
        self.fails = False
        self.fakes = [n.meta.get("val") for n in module.graph.nodes if n.op == "placeholder"]
        self.numbers: dict[Any, Any] = {}
        self._warn_of_large_inputs(parts.inputs)

    def __call__(self, args: list[Any]) -> list[Any]:
        if self.fails:
            return self._op_by_op(args)
        arguments = list(args)
        args.clear()
        try:
            return self._compiled(arguments)
        except CompileError as error:
            if self.padded:
                return self._for_each_size(arguments, error)
            if not self.options.falls_back:
                raise
            self.fails = True
            warnings.warn(
                f"a graph runs op by op, because it cannot be compiled: {error}", CompileWarning, stacklevel=2
            )
            return self._op_by_op(arguments)

    def _compiled(self, arguments: list[Any]) -> list[Any]:
        host: Sequence[Any] = ()
        if self.direct:
            inputs = [arguments[i] for i in self.forwards or ()]
        else:
            for source in self.split.outputs:
                if source.kind == "number":
                    self._number(source.value)  # fails before anything was written
            host = self.split.host(*arguments) if self.split.host is not None else ()
            inputs = [self._pick(s, arguments, host, ()) for s in self.split.inputs]
        if self.background is not None:
            if not self.background.ready(inputs):
                return self._op_by_op(arguments)
            self.background = None
        device = [] if self.idle else self.run(inputs)
        return device if self.direct else self._outputs(arguments, host, device)

    def _outputs(self, arguments: list[Any], host: Sequence[Any], device: Sequence[Any]) -> list[Any]:
        for index, source in self.split.writes:
            arguments[index].copy_(self._pick(source, arguments, host, device))
        return [self._pick(s, arguments, host, device) for s in self.split.outputs]

    def _for_each_size(self, arguments: list[Any], error: CompileError) -> list[Any]:
        """From now on a program for each size."""
        self.padded, self.run = False, self.program.core.run
        warnings.warn(
            f"a graph with dynamic sizes is compiled for each size, because it cannot be padded: {error}",
            CompileWarning,
            stacklevel=3,
        )
        return self(arguments)

    def _pick(self, source: Source, arguments: Sequence[Any], host: Sequence[Any], device: Sequence[Any]) -> Any:
        if source.kind == "argument":
            return arguments[source.number]
        if source.kind == "host":
            return host[source.number]
        if source.kind == "constant":
            return source.value
        if source.kind == "number":
            return self._number(source.value)(list(arguments))
        if source.kind == "view":
            return self._view(source, arguments)
        result = device[source.number]
        return result.cpu() if source.kind == "download" else result

    def _view(self, source: Source, arguments: Sequence[Any]) -> Any:
        """A view of an argument, at the same distance from its start as between the fakes."""
        argument, fake, base = arguments[source.number], source.value, self.fakes[source.number]
        sizes, strides = ([self._number(n)(list(arguments)) for n in ns] for ns in (fake.shape, fake.stride()))
        moved = self._number(fake.storage_offset() - base.storage_offset())(list(arguments))
        return argument.as_strided(sizes, strides, argument.storage_offset() + moved)

    def _number(self, size: Any) -> Any:
        if not isinstance(size, torch.SymInt):
            return lambda _: size
        if size.node.expr not in self.numbers:
            self.numbers[size.node.expr] = number_of(size, self.fakes)
        return self.numbers[size.node.expr]

    def _op_by_op(self, args: list[Any]) -> list[Any]:
        arguments = list(args)
        args.clear()
        return list(op_by_op(self.module)(*arguments))

    def _warn_of_large_inputs(self, inputs: Sequence[Source]) -> None:
        nodes = self.program.function.placeholders
        for node, source in zip(nodes, inputs):
            value = node.meta.get("val")
            if source.kind == "constant" or not isinstance(value, torch.Tensor) or not on_host(value):
                continue
            nbytes = value.dtype.itemsize * (value.numel() if all(isinstance(s, int) for s in value.shape) else 0)
            if nbytes >= _LARGE:
                warnings.warn(
                    f"a compiled graph takes a CPU tensor of {nbytes / 2**20:.0f} MiB ({list(value.shape)}, "
                    f"{value.dtype}), which is sent to the device in each call; move it there once",
                    CompileWarning,
                    stacklevel=2,
                )
