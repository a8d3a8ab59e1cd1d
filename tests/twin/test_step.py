"""A step over a mesh of other sizes is what lowering it for that mesh gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torus  # noqa: F401  makes the device exist where the package is not installed
from torus.twin.case import Case
from torus.twin.sharding import Sharding


def case(**changes: Any) -> Case:
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
    return Case(model, (torch.zeros(32, 64),), "train", **changes)


@pytest.mark.parametrize(
    ("sharding", "before", "after"),
    [("data", {"data": 4}, {"data": 8}), ("tensor", {"data": 4, "model": 2}, {"data": 2, "model": 8})],
)
def test_resizing_is_lowering_again(sharding: Sharding, before: dict[str, int], after: dict[str, int]) -> None:
    lowered = case(mesh=after, sharding=sharding).capture()
    resized = case(mesh=before, sharding=sharding).capture().resized(after)
    assert resized.mesh == after and resized.arguments == lowered.arguments
    head, *body = lowered.text.splitlines()
    assert resized.text.splitlines()[0] == head
    assert [line for line in resized.text.splitlines() if "sdy.mesh" not in line][1:] == [
        line for line in body if "sdy.mesh" not in line
    ]
    for axis, size in after.items():
        assert f'"{axis}"={size}' in resized.text.splitlines()[1]


def test_a_forward_step_leaves_out_what_only_the_loss_takes() -> None:
    model = torch.nn.Linear(4, 3)
    inputs = torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64)

    def loss(model: Any, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(x), labels)

    for step, expected in (("forward", 1), ("train", 2)):
        found = Case(model, inputs, step, loss).capture()  # type: ignore[arg-type]
        assert sum(argument.kind == "input" for argument in found.arguments) == expected
