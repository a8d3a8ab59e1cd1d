"""Pieces of the points shared among devices, or processes, each with the whole model.

The pieces are those of `torus.explain.chunks`, and results come back in their order, so that any number of devices
gives the same bits at one size of chunk.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed
from torch.utils import _pytree

from torus.backend import device as tpu
from torus.explain.chunks import Chunked
from torus.explain.function import Function, ModelFunction
from torus.explain.points import Points, repeat

Devices = int | str | Sequence[str | torch.device] | None

SIZE = 16
"""Copies of the examples in a piece where no chunk is given."""

WORTH = 1.1
"""How many times as fast several devices have to be."""


class Sharded(Chunked):
    """Pieces dealt out to one function on each device, in turn. Work is started on all before any is waited for."""

    def __init__(self, functions: Sequence[Function], devices: Sequence[torch.device], size: int) -> None:
        super().__init__(functions[0], size)
        self.functions, self.devices = functions, devices

    def _each(self, what: str, pieces: Iterable[Points]) -> list[Any]:
        started = []
        for number, piece in enumerate(pieces):
            turn = number % len(self.devices)
            started.append(getattr(self.functions[turn], what)(_moved(piece, self.devices[turn])))
        return [_moved(found, self.devices[0]) for found in started]


class Spread(Chunked):
    """Pieces dealt out to processes that all run the same method: each gets the results of all."""

    def _each(self, what: str, pieces: Iterable[Points]) -> list[Any]:
        rank, world, every = distributed.get_rank(), distributed.get_world_size(), list(pieces)
        mine = _moved(super()._each(what, every[rank::world]), torch.device("cpu"))
        gathered: list[Any] = [None] * world
        distributed.all_gather_object(gathered, mine)
        return [_moved(gathered[n % world][n // world], every[0][0].device) for n in range(len(every))]


@dataclass(frozen=True)
class Sharding:
    """Where pieces run, and why there: `reason` is for the user."""

    devices: tuple[torch.device, ...]
    reason: str
    processes: int = 1

    @property
    def ways(self) -> int:
        """How many pieces run at once."""
        return max(len(self.devices), self.processes)

    def function(self, original: ModelFunction, size: int, prepare: Callable[[Function], Function]) -> Function:
        """The function in pieces of `size` copies; `prepare` is done to each replica."""
        if self.processes > 1:
            return Spread(prepare(original), size)
        if len(self.devices) == 1:
            return Chunked(prepare(original), size)
        return Sharded([prepare(replica(original, device)) for device in self.devices], self.devices, size)


def chosen(devices: Devices, original: ModelFunction, points: Points, size: int, *, gradients: bool) -> Sharding:
    """The devices that were asked for; for "auto" all of the points' kind, or one where that is not slower.

    Raises ValueError for devices that are not there, and for a model that cannot be copied to them.
    """
    home = points[0].device
    if devices == "processes":
        return _processes(home)
    if devices == "auto":
        return _faster(original, points, size, gradients)
    found = _named(devices, home)
    return Sharding(found, f"{len(found)} devices, as asked for")


def replica(function: ModelFunction, device: torch.device) -> ModelFunction:
    """The same function on another device. Raises ValueError where the model is no module."""
    if device == function.inputs[0].device:
        return function
    if not isinstance(function.model, torch.nn.Module):
        raise ValueError("only a module can be copied to other devices, and the model is none")
    model = copy.deepcopy(function.model).to(device)
    names = {module: name for name, module in function.model.named_modules()}
    found = function.rebound(*_moved((function.inputs, function.arguments, function.target), device))
    found.model = model
    found.layer = None if function.layer is None else model.get_submodule(names[function.layer])
    return found


def most(devices: Devices, points: Points) -> int:
    """How many devices of this process may share the work."""
    if devices == "processes":
        return 1
    home = points[0].device
    return len(_all(home) if devices == "auto" else _named(devices, home))


def _named(devices: Devices, home: torch.device) -> tuple[torch.device, ...]:
    there = _all(home)
    if isinstance(devices, int) and 0 < devices <= len(there):
        return tuple(there[:devices])
    if isinstance(devices, int | str) or not devices:
        raise ValueError(
            f"devices={devices!r} is not understood: there are {len(there)} of the kind {home.type!r}; give a number, "
            "their names, 'auto' or 'processes'"
        )
    return tuple(torch.device(device) for device in devices)


def _all(home: torch.device) -> list[torch.device]:
    """Every device of this kind, the points' own first."""
    if home.type != "tpu":
        return [home]
    every = [torch.device(home.type, index) for index in range(tpu.device_count())]
    return [home, *(device for device in every if device != home)]


def _processes(home: torch.device) -> Sharding:
    if not distributed.is_initialized():
        raise ValueError("devices='processes' needs torch.distributed.init_process_group")
    world = distributed.get_world_size()
    return Sharding((home,), f"{world} processes, as asked for", world)


def _faster(original: ModelFunction, points: Points, size: int, gradients: bool) -> Sharding:
    """Try both on one piece for each device: what counts is the machine, its copies and this model."""
    home, devices = points[0].device, tuple(_all(points[0].device))
    alone = Sharding((home,), "")
    if len(devices) == 1:
        return Sharding((home,), "there is one device")
    if not isinstance(original.model, torch.nn.Module):
        return Sharding((home,), "not shared: only a module can be copied to other devices, and the model is none")
    work = repeat(points, size * len(devices))
    shared = Sharding(devices, "")
    one, many = (_seconds(s.function(original, size, lambda f: f), work, gradients) for s in (alone, shared))
    took = f"{len(devices)} devices take {many:.3g} s for what one does in {one:.3g} s"
    return Sharding(devices, took) if one > WORTH * many else Sharding((home,), f"not shared: {took}")


def _seconds(function: Function, points: Points, gradients: bool) -> float:
    """The second run, since the first compiles."""
    ask: Callable[[Points], Any] = function.grad if gradients else function.value
    _moved(ask(points), torch.device("cpu"))
    started = time.perf_counter()
    _moved(ask(points), torch.device("cpu"))
    return time.perf_counter() - started


def _moved(found: Any, device: torch.device) -> Any:
    return _pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), found)
