"""How a function runs: op by op, recorded and fused, or compiled whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torus.backend import device as tpu
from torus.explain.function import Function, Program
from torus.explain.points import Points

MODES = ("default", "strict", "fused", "compiled")


class Compiled:
    """A function whose value and gradient are each one program a shape, captured op by op at the first call.

    Capturing sees what the model does, hooks included, and not what its modules are. Parameters are read at each call;
    a model whose Python code branches on values is captured with the branch of its first call, so it is refused by
    PyTorch's tracer with an error.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self._programs: dict[Any, Callable[..., Any]] = {}

    @property
    def examples(self) -> int:
        return self.function.examples

    def value(self, points: Points) -> torch.Tensor:
        return self._call("value", self.function.value, points)

    def grad(self, points: Points) -> tuple[torch.Tensor, Points]:
        return self._call("grad", self.function.grad, points)

    def apply(self, program: Program, points: Points) -> Points:
        return self._call(program, lambda tensors: self.function.apply(program, tensors), points)

    def _call(self, name: Any, function: Callable[[Points], Any], points: Points) -> Any:
        key = name, tuple((tensor.shape, tensor.dtype, tensor.device) for tensor in points)
        if key not in self._programs:
            self._programs[key] = _capture(function, points)
        with torch.no_grad():
            return self._programs[key](*points)


def _capture(function: Callable[[Points], Any], points: Points) -> Callable[..., Any]:
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda *tensors: function(tensors))(*(tensor.detach() for tensor in points))
    backend = "tpu" if points[0].device.type == "tpu" else "inductor"
    return torch.compile(graph, backend=backend, fullgraph=True, dynamic=False)


@contextlib.contextmanager
def running(mode: str) -> Iterator[None]:
    """Have ops run in a mode of `MODES`; "default" leaves them as they are. Raises ValueError for any other."""
    if mode not in MODES:
        raise ValueError(f"there is no mode {mode!r}; there are {', '.join(MODES)}")
    if mode not in ("strict", "fused"):
        yield
        return
    wanted = tpu.EagerMode.DEFER_AND_FUSE if mode == "fused" else tpu.EagerMode.DEFER_NEVER
    with tpu.set_eager_mode(wanted):
        yield
