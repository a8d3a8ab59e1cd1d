"""The estimate from a compiled program, and the exchanges that are read from its HLO."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("libtpu", reason="libtpu, which has the TPU compiler, is not installed")

from tests.twin.test_compiler import PRODUCT
from torus.twin.compiler import Compiler, estimate_of, exact
from torus.twin.compiler.collectives import exchanges
from torus.twin.step import Step
from torus.twin.topology import Topology

GROUPS = {
    "replica_groups={{0,2},{1,3}}": (0, 2),
    "replica_groups=[2,2]<=[4]": (0, 1),
    "replica_groups=[2,2]<=[2,2]T(1,0)": (0, 2),
    "replica_groups=mesh['axis_0'=2,'axis_1'=2] {'axis_0'}": (0, 2),
    "replica_groups=mesh['axis_0'=2,'axis_1'=2] {'axis_0','axis_1'}": (0, 1, 2, 3),
    "channel_id=1": (0, 1, 2, 3),
}


@pytest.mark.parametrize("written", GROUPS)
def test_a_group_of_devices_is_read_however_it_is_written(written: str) -> None:
    line = f"  %all-reduce.1 = f32[8]{{0}} all-reduce(%a), {written}, to_apply=%add"
    assert [each.group for each in exchanges(line, 4)] == [GROUPS[written]]


SENT = {
    "%r = f32[8]{0} all-reduce(%a), replica_groups=[1,4]<=[4]": ("all-reduce", 2 * 32 * 3 // 4),
    "%r = bf16[8]{0:T(8,128)S(1)} all-gather(%a), replica_groups=[1,4]<=[4]": ("all-gather", 16 * 3 // 4),
    "%r = (f32[2]{0}, f32[8]{0}) all-gather-start(%a), replica_groups=[1,4]<=[4]": ("all-gather", 32 * 3 // 4),
    "%r = f32[2]{0} reduce-scatter(%a), replica_groups=[1,4]<=[4], dimensions={0}": ("reduce-scatter", 32 * 3 // 4),
    "%r = pred[8]{0} all-to-all(%a), replica_groups=[1,4]<=[4]": ("all-to-all", 8 * 3 // 4),
    "%r = f8e4m3fn[8]{0} collective-permute(%a), source_target_pairs={{0,1}}": ("collective-permute", 8),
}


@pytest.mark.parametrize("line", SENT)
def test_an_exchange_sends_what_a_ring_must(line: str) -> None:
    assert [(each.kind, each.sent) for each in exchanges(line, 4)] == [SENT[line]]


def test_the_exact_estimate_is_the_compilers_own(tmp_path: Path) -> None:
    topology = Topology.parse("v6e:2x2")
    step = Step("product", PRODUCT.format(devices=4, rows=1024), (), (), {"data": 4})
    compiler = Compiler(topology, tmp_path)
    found, said = exact(step, topology, compiler), compiler.compile(step.text)
    sizes = {name: said.memory[f"{name}_size_in_bytes"] for name in ("argument", "output", "alias", "temp")}
    memory = found.memory
    assert (memory.arguments, memory.temporaries) == (sizes["argument"], sizes["temp"])
    assert memory.peak == sizes["argument"] + sizes["output"] - sizes["alias"] + sizes["temp"]
    assert (found.flops, found.compiler_seconds) == (said.cost["flops"], said.cost["optimal_seconds"])
    assert [(each.kind, each.axes) for each in found.collectives] == [("all-reduce", ("data",))]
    unread = estimate_of(replace(said, hlo=""), step, topology)
    assert [(each.kind, each.axes) for each in unread.collectives] == [("all-reduce", ("data",))]
    assert unread.memory == memory and "analytic" in unread.notes[0]
