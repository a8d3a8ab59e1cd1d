"""How a function runs: op by op, recorded and fused, or compiled whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch

from torus.backend import device as tpu
from torus.explain.captures import Bindings
from torus.explain.function import Function, Program
from torus.explain.points import Points
from torus.explain.precision import current

MODES = ("default", "strict", "fused", "compiled")


class Compiled:
    """A function whose value and gradient are each one program a shape, captured op by op at the first call.

    Capturing sees what the model does, hooks included, and not what its modules are. Parameters, inputs of a layer and
    arguments are read at each call, and programs serve later functions of the same model, target and shapes: see
    `torus.explain.captures`. A model whose Python code branches on values is refused by PyTorch's tracer with an error.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self._bindings = Bindings(function)
        self._programs = self._bindings.programs()

    @property
    def examples(self) -> int:
        return self.function.examples

    def value(self, points: Points) -> torch.Tensor:
        return self._call("value", lambda function, points: function.value(points), points)

    def grad(self, points: Points) -> tuple[torch.Tensor, Points]:
        return self._call("grad", lambda function, points: function.grad(points), points)

    def apply(self, program: Program, points: Points) -> Points:
        return self._call(program, lambda function, points: function.apply(program, points), points)

    def _call(self, what: Hashable, ask: Callable[[Function, Points], Any], points: Points) -> Any:
        tensors = tuple(tensor.detach() for tensor in (*points, *self._bindings.tensors))
        shapes = tuple((tensor.shape, tensor.dtype, tensor.device) for tensor in tensors)
        key = what, shapes, current(points[0].device), self._bindings.key
        if key not in self._programs:
            rebind, count = self._bindings.with_tensors, len(points)
            self._programs[key] = _capture(lambda *given: ask(rebind(given[count:]), given[:count]), tensors)
        with torch.no_grad():
            return self._programs[key](*tensors)


def _capture(function: Callable[..., Any], tensors: Points) -> Callable[..., Any]:
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*tensors)
    backend = "tpu" if tensors[0].device.type == "tpu" else "inductor"
    return torch.compile(graph, backend=backend, fullgraph=True, dynamic=False)


def prepared(mode: str) -> Callable[[Function], Function]:
    """What a mode does to a function before it runs."""
    return Compiled if mode == "compiled" else lambda function: function


@contextlib.contextmanager
def running(mode: str) -> Iterator[None]:
    """Have ops run in a mode of `MODES`; "default" leaves them as they are. Those around compiled programs are fused.

    Raises ValueError for any other mode.
    """
    if mode not in MODES:
        raise ValueError(f"there is no mode {mode!r}; there are {', '.join(MODES)}")
    if mode == "default":
        yield
        return
    wanted = tpu.EagerMode.DEFER_NEVER if mode == "strict" else tpu.EagerMode.DEFER_AND_FUSE
    with tpu.set_eager_mode(wanted):
        yield
