"""A step cut into blocks, each of which runs by itself."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

import torus  # noqa: F401
from tests.twin.steps import Stack, run, values
from torus.twin.blocks import Cut
from torus.twin.capture import capture
from torus.twin.compiler import Compiled
from torus.twin.composed import compose, memory
from torus.twin.estimate import Estimate, Memory
from torus.twin.module import read
from torus.twin.step import Step
from torus.twin.topology import Topology


def _step(layers: int = 3, mesh: dict[str, int] | None = None, batch: int = 8) -> Step:
    model = Stack(layers, 16)
    return capture(
        model,
        (torch.empty(batch, 16, device="meta"),),
        step="train",
        optimizer=partial(torch.optim.SGD, momentum=0.9),
        mesh=mesh,
        sharding="fsdp",
        precision="highest",
    )


def test_equal_layers_are_equal_blocks() -> None:
    few, many = Cut(_step(3)), Cut(_step(5))
    assert set(few.counts) == set(many.counts)
    assert sorted(many.counts.values())[-3] >= 3  # forward, backward, update; the first and the last may be others


def test_blocks_after_one_another_are_the_step() -> None:
    torch.manual_seed(0)
    model = Stack(3, 16)
    step = _step(3)
    given: dict[str, Any] = {**values(model), "x": torch.randn(8, 16).numpy()}
    cut = Cut(step)
    held = {
        v: given.get(a.name, np.zeros(a.shape, a.dtype)) for v, a in zip(cut.arguments, step.arguments, strict=True)
    }
    for block in cut.blocks:
        named = Step("block", block.step.text, block.step.arguments, _numbered(block.step))
        results = run(named, {a.name: held[v] for v, a in zip(block.enters, block.step.arguments, strict=True)})
        held.update(zip(block.leaves, results.values(), strict=True))
    for value, (name, expected) in zip(cut.returns, run(step, given).items(), strict=True):
        np.testing.assert_allclose(held[value], expected, rtol=1e-4, atol=1e-6, err_msg=name)


def _numbered(step: Step) -> Any:
    from dataclasses import replace

    names = {"f32": "float32", "i64": "int64", "ui32": "uint32", "i1": "bool", "bf16": "bfloat16"}
    return tuple(replace(r, name=str(i), dtype=names.get(r.dtype, r.dtype)) for i, r in enumerate(step.results))


def test_blocks_of_a_mesh_keep_their_shardings() -> None:
    cut = Cut(_step(2, {"data": 4}))
    for block in cut.blocks:
        module = read(block.step.text, cut.step.mesh)
        assert [module.values[v].spec for v in module.main.arguments] == [a.spec for a in block.step.arguments]
    assert any(("data",) in a.spec for block in cut.blocks for a in block.step.arguments if a.kind == "input")


def test_memory_counts_what_lives_between_blocks_once() -> None:
    """A block needs its temporaries, what enters and leaves it, and what was made before it and is used after it."""
    cut = Cut(_step(2))
    nothing = [_estimate(0) for _ in cut.blocks]
    found = memory(cut, nothing)
    assert found.arguments == sum(map(cut.bytes, cut.arguments)) and found.peak == found.arguments + found.outputs + (
        found.temporaries
    )
    widest = max(range(len(cut.blocks)), key=lambda i: len(cut.blocks[i].enters))
    nothing[widest] = _estimate(1 << 30)
    assert found.temporaries > memory(cut, nothing).temporaries - (1 << 30) > 0


def _estimate(temporaries: int) -> Estimate:
    return Estimate("exact", Memory(0, 0, temporaries, temporaries), 0.0, 0.0, 0.0)


class _Compiler:
    """Stands for the TPU compiler; knows each program that it has seen."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def is_known(self, text: str, **_: Any) -> bool:
        return text in self.seen

    def compile(self, text: str, **_: Any) -> Compiled:
        self.seen.append(text)
        sizes = {"argument": 8, "output": 8, "alias": 0, "temp": 1 << 20}
        memory = {f"{name}_size_in_bytes": size for name, size in sizes.items()}
        return Compiled(memory, {"flops": 5.0, "bytes accessed": 7.0}, 2.0, "", b"")


def test_each_kind_of_block_is_compiled_once() -> None:
    compiler, told, place = _Compiler(), [], Topology.parse("v6e:1x1")
    found = compose(_step(3), place, compiler, 60.0, told.append)  # type: ignore[arg-type]
    assert found.programs == len(compiler.seen) == len(set(compiler.seen)) == len(told)
    assert found.flops == 5.0 * len(Cut(_step(3)).blocks) and found.compile_seconds == 2.0 * found.programs
    assert found.memory.temporaries > 1 << 20 and told[0].startswith("block 1 of")
    again = compose(_step(3), place, compiler, 0.0)  # type: ignore[arg-type]
    assert again.flops == found.flops  # what is known needs no time
    late = compose(_step(4), place, _Compiler(), 0.0)  # type: ignore[arg-type]
    assert "kinds of blocks have analytic figures" in late.notes[-1]
