"""What would help, and scaling: figures come from the step captured again with the change."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import torus  # noqa: F401  makes the device exist where the package is not installed
from torus.twin import advice
from torus.twin.case import Case, mesh_for, repeated_blocks, weightless
from torus.twin.chips import CHIPS
from torus.twin.estimate import Estimate, Memory
from torus.twin.planning import Plan, Planner
from torus.twin.scaling import scale
from torus.twin.topology import Topology

WIDTH = 128
SGD = functools.partial(torch.optim.SGD, lr=0.1)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(x)))


class Head(nn.Module):
    """A model with scores for each position, as language models have them."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.head = nn.Linear(WIDTH, 8 * WIDTH)

    def forward(self, x: torch.Tensor, logits_to_keep: int = 0) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, -logits_to_keep:])


def case(batch: int = 32, **changes: Any) -> Case:
    with torch.device("meta"):
        inputs = (torch.zeros(batch, 16, WIDTH),)
        return Case(Head(), inputs, **{"step": "train", "optimizer": SGD, **changes})


def small(topology: str, hbm: int) -> Topology:
    """A topology of chips with so little memory."""
    place = Topology.parse(topology)
    return replace(place, chip=replace(CHIPS[place.chip.family], hbm_bytes=hbm))


def planned(case: Case, topology: Topology, mesh: str | None = None) -> Plan:
    planner = Planner(case, topology, mesh)
    list(planner.answers(0))
    planner.advise()
    return planner.plan


class Sized:
    """A stand-in for a case: a batch and what is split over nothing."""

    arguments = ()

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.mesh: dict[str, int] = {}

    def with_batch(self, batch: int) -> Sized:
        return Sized(batch)

    def capture(self) -> Sized:
        return self


@pytest.mark.parametrize("start", [1, 100, 3000])
@pytest.mark.parametrize(("fixed", "each", "bend"), [(1000, 10, 0), (0, 7, 0), (5000, 3, 1), (9990, 10, 0)])
def test_the_largest_batch_fits_and_a_larger_one_does_not(
    start: int, fixed: int, each: int, bend: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def memory(case: Any, topology: Any) -> Estimate:
        tried.append(case.batch)
        size = fixed + each * case.batch + bend * int(case.batch**0.5)
        return Estimate("analytic", Memory(0, 0, size, size), 0, 0, 0)

    monkeypatch.setattr(advice, "estimate", memory)
    topology, case = small("v6e:1x1", 10_000), Sized(start)
    found = advice.largest_batch(case, topology, memory(case, topology))  # type: ignore[arg-type]
    assert found is not None
    larger = Sized(found + max(1, int(found * advice.ENOUGH)))
    assert memory(Sized(found), topology).memory.needed <= 10_000 < memory(larger, topology).memory.needed
    assert len(tried) < 12


def test_no_batch_fits_where_the_parameters_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def memory(case: Any, topology: Any) -> Estimate:
        return Estimate("analytic", Memory(0, 0, 0, 20_000 + case.batch), 0, 0, 0)

    monkeypatch.setattr(advice, "estimate", memory)
    assert advice.largest_batch(Sized(64), small("v6e:1x1", 10_000), memory(Sized(64), None)) is None  # type: ignore[arg-type]


def test_advice_for_training() -> None:
    before = case(batch=512)
    plan = planned(before, small("v6e:1x1", 16 * 2**20))
    assert not plan.fits
    found = {change.name: change for change in plan.advice}
    assert {"bfloat16", "remat", "batch"} <= set(found) and "logits_to_keep" not in found
    for name in ("bfloat16", "remat"):
        assert found[name].before == plan.best
        assert found[name].after.memory.peak < 0.9 * plan.best.memory.peak
    assert found["batch"].fits and "instead of 512" in found["batch"].what
    assert all(p.dtype == torch.float32 for p in before.fn.parameters())  # type: ignore[union-attr]
    assert "forward" not in vars(before.fn.blocks[0])  # type: ignore[union-attr]


def test_advice_for_inference() -> None:
    found = {change.name: change for change in planned(case(step="forward"), small("v6e:1x1", 48 * 2**20)).advice}
    assert "remat" not in found
    assert found["logits_to_keep"].after.memory.peak < found["logits_to_keep"].before.memory.peak


def test_fsdp_is_advised_where_there_are_devices() -> None:
    found = {change.name: change for change in planned(case(), small("v6e:2x2", 48 * 2**20)).advice}
    assert found["fsdp"].after.memory.arguments < 0.5 * found["fsdp"].before.memory.arguments


def test_a_smaller_topology() -> None:
    plan = planned(case(), small("v6e:2x2", 32 * 2**30), "data=4")
    assert [c.what for c in plan.advice if c.name == "topology"] == ["v6e:1x1, the smallest that it fits on"]


def test_a_copy_without_weights_keeps_what_is_shared() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    copy = weightless(model)
    assert copy[1].weight is copy[0].weight and copy[0].weight.is_meta and not model[0].weight.is_meta


def test_blocks_are_the_outermost_that_repeat() -> None:
    assert len(repeated_blocks(Head())) == 2
    assert not repeated_blocks(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))


@pytest.mark.parametrize(
    ("topology", "like", "expected"),
    [
        ("v6e:2x2", {"data": 8, "model": 2}, {"data": 2, "model": 2}),
        ("v6e:1x1", {"data": 8, "model": 2}, None),
        ("v6e:1x1", {}, {}),
        ("v6e:2x2", {}, {"data": 4}),
    ],
)
def test_a_mesh_for_another_topology(topology: str, like: dict[str, int], expected: dict[str, int] | None) -> None:
    assert mesh_for(Topology.parse(topology), like) == expected


def test_scaling() -> None:
    curves = {(c.kind, c.sharding): c for c in scale(case(), Topology.parse("v6e:1x1"), print)}
    assert set(curves) == {(kind, s) for kind in ("weak", "strong") for s in ("data", "fsdp", "tensor")}
    weak, strong = curves["weak", "data"], curves["strong", "data"]
    assert [p.topology.chips for p in weak.points] == [1, 4, 16, 64, 256]
    assert [p.batch for p in weak.points] == [32, 128, 512, 2048, 8192]
    assert weak.points[0].efficiency == 1.0
    assert all(0 < p.efficiency_without_overlap <= p.efficiency + 1e-9 for c in curves.values() for p in c.points)
    assert [p.topology.chips for p in strong.points] == [1, 4, 16] and "no longer splits" in strong.note
    assert weak.points[-1].estimate.memory.peak < 1.2 * weak.points[0].estimate.memory.peak
    sharded = curves["weak", "fsdp"].points
    assert sharded[-1].estimate.memory.arguments < 0.2 * sharded[0].estimate.memory.arguments
