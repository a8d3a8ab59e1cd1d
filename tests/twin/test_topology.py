"""Names of topologies and meshes, and what their errors say."""

from __future__ import annotations

import pytest

from torus.twin.chips import CHIPS
from torus.twin.topology import Mesh, Topology


def test_a_topology_counts_its_chips_and_devices() -> None:
    assert (Topology.parse("v6e:2x4").chips, Topology.parse("v6e:2x4").devices) == (8, 8)


def test_a_tpu7x_chip_is_two_devices_with_half_of_its_memory_each() -> None:
    topology = Topology.parse("tpu7x:2x2x1")
    assert (topology.chips, topology.devices, topology.chip.hbm_documented) == (4, 8, 96 * 2**30)


@pytest.mark.parametrize("family", CHIPS)
def test_every_topology_parses_from_its_name(family: str) -> None:
    assert all(Topology.parse(topology.name) == topology for topology in Topology.all(family))


def test_a_grid_that_does_not_exist_lists_those_that_do() -> None:
    with pytest.raises(ValueError, match=r"v6e:3x3 does not exist; v6e has 1x1, 2x2, 2x4, .*16x16"):
        Topology.parse("v6e:3x3")


@pytest.mark.parametrize("name", ["v6e", "v6e:", "v6e:2x", "v6e:4", "v5p:2x2"])
def test_a_grid_that_is_not_one_lists_those_that_exist(name: str) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        Topology.parse(name)


def test_a_family_that_does_not_exist_lists_those_that_do() -> None:
    with pytest.raises(ValueError, match="v5e, v5p, v6e, tpu7x"):
        Topology.parse("v9z:2x2")


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("data=4,model=2", {"data": 4, "model": 2}),
        ("data=-1, model=2", {"data": 4, "model": 2}),
        ("data=8", {"data": 8}),
    ],
)
def test_a_mesh_names_its_axes(text: str, axes: dict[str, int]) -> None:
    assert Mesh.parse(text, Topology.parse("v6e:2x4")).axes == axes


def test_one_device_needs_no_mesh() -> None:
    assert Mesh.parse("", Topology.parse("v6e:1x1")).axes == {}


@pytest.mark.parametrize("text", ["data=3", "data=4", "", "data=-1,model=-1", "data=-1,model=3"])
def test_a_mesh_that_does_not_fill_the_devices_says_how_many_there_are(text: str) -> None:
    with pytest.raises(ValueError, match="v6e:2x4 has 8 devices"):
        Mesh.parse(text, Topology.parse("v6e:2x4"))


@pytest.mark.parametrize("text", ["data", "data=x", "=4", "data=2,data=4", "data=0"])
def test_a_mesh_that_is_not_one_says_how_it_is_written(text: str) -> None:
    with pytest.raises(ValueError, match="is written 'data=4,model=2'"):
        Mesh.parse(text, Topology.parse("v6e:2x4"))


@pytest.mark.parametrize(("family", "link"), [("v5e", 50e9), ("v5p", 100e9), ("v6e", 100e9), ("tpu7x", 100e9)])
def test_a_link_has_its_share_of_the_documented_bandwidth(family: str, link: float) -> None:
    assert CHIPS[family].link_bandwidth == link
