"""How arguments are split over a mesh."""

from __future__ import annotations

from functools import cache, partial

import pytest
import torch

import torus  # noqa: F401
from tests.twin.steps import Stack
from torus.twin.capture import lower
from torus.twin.sharding import Plan, Sharding, Split, roles
from torus.twin.step import Spec
from torus.twin.trace import Traced, trace


@cache
def _traced() -> Traced:
    optimizer = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    return trace(Stack(1), (torch.zeros(8, 128),), "train", optimizer=optimizer)


def _specs(mesh: dict[str, int], sharding: Sharding, split: Split | None = None) -> dict[str, Spec]:
    found = Plan(_traced(), mesh, sharding, split).arguments
    return {v.name: spec for v, spec in zip(_traced().arguments, found, strict=True)}


def test_a_program_says_how_its_arguments_are_split() -> None:
    step = lower(_traced(), Plan(_traced(), {"data": 4}, "fsdp"))
    assert "mhlo.num_partitions = 4" in step.text and '<["data"=4]>' in step.text
    index = [a.name for a in step.arguments].index("layers.0.down.weight")
    argument = step.text.split(f"%arg{index}: ")[1].split(", %arg")[0]
    assert '[{}, {"data"}p1]' in argument and "tf.aliasing_output" in argument
    assert step.arguments[index].local_shape(step.mesh) == (128, 64)


def test_data_splits_the_batch_alone() -> None:
    found = _specs({"data": 4}, "data")
    assert found.pop("x") == (("data",), ())
    assert not any(axes for spec in found.values() for axes in spec)


def test_fsdp_splits_parameters_and_their_state_on_the_largest_dimension() -> None:
    found = _specs({"data": 4}, "fsdp")
    assert found["x"] == (("data",), ())
    assert found["layers.0.up.weight"] == found["layers.0.up.weight.momentum_buffer"] == (("data",), ())
    assert found["layers.0.down.weight"] == ((), ("data",))
    assert found["last.bias"] == ((),)  # of size 1


def test_tensor_splits_columns_then_rows() -> None:
    found = _specs({"model": 4}, "tensor")
    assert found["x"] == ((), ())
    assert found["layers.0.up.weight"] == (("model",), ()) and found["layers.0.up.bias"] == (("model",),)
    assert found["layers.0.down.weight"] == ((), ("model",)) and found["layers.0.down.bias"] == ((),)


def test_axes_have_roles_by_name() -> None:
    assert roles({"data": 2, "model": 2}, "fsdp") == {"data": "fsdp", "model": "tensor"}
    assert roles({"data": 2, "model": 2}, "tensor") == {"data": "data", "model": "tensor"}
    assert roles({"x": 2, "y": 2}, {"x": "fsdp", "y": "tensor"}) == {"x": "fsdp", "y": "tensor"}
    with pytest.raises(ValueError, match="no axis z; it has x"):
        roles({"x": 2}, {"z": "data"})
    with pytest.raises(ValueError, match="no sharding pipeline; there are data, fsdp, tensor"):
        roles({"x": 2}, "pipeline")  # type: ignore[arg-type]
    found = _specs({"data": 2, "model": 2}, "fsdp")
    assert found["layers.0.up.weight"] == (("model",), ("data",))


def test_a_user_says_how_a_parameter_is_split() -> None:
    found = _specs({"data": 4}, "fsdp", split=lambda name, shape: ((),) * len(shape) if "up" in name else None)
    assert found["layers.0.up.weight"] == ((), ()) and found["layers.0.down.weight"] == ((), ("data",))
