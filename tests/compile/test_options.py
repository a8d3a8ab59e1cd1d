"""Options of compiled functions, and what was made of them."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn


@pytest.fixture
def network(device: str) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to(device)


def compiled(model: nn.Module, mode: str | None = None, **options: Any) -> Any:
    return (
        torch.compile(model, backend="tpu", mode=mode, options=options)
        if mode is None
        else (torch.compile(model, backend="tpu", mode=mode))
    )


def programs_run(call: Any) -> int:
    before = torch.tpu.counters()["programs"]
    call()
    return torch.tpu.counters()["programs"] - before


def test_compiling_in_the_background(network: nn.Module, device: str) -> None:
    """The first call runs op by op; once the program is there, it is one program."""
    x = torch.randn(13, 8, device=device)
    wanted = network(x).cpu()
    function = compiled(network, async_compile=True, fallback=False, name="in the background", serializable=False)
    assert programs_run(lambda: torch.testing.assert_close(function(x).cpu(), wanted)) > 1
    deadline = time.monotonic() + 60
    while (ran := programs_run(lambda: function(x))) > 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ran == 1
    torch.testing.assert_close(function(x).cpu(), wanted)


def test_a_callback_gets_what_was_made(network: nn.Module, device: str) -> None:
    seen: list[Any] = []
    compiled(network, debug_callback=seen.append, name="mine", serializable=False)(torch.randn(3, 8, device=device))
    assert [program.name for program in seen] == ["mine"]
    program = seen[0]
    assert "aten.addmm" in program.fx and "stablehlo.dot_general" in program.stablehlo
    assert "HloModule" in program.hlo
    assert program.memory["results"] >= 3 * 4 * 4 and program.cost["flops"] > 0
    assert torch.tpu.compiler.programs()[-1] is program


def test_texts_in_a_folder(network: nn.Module, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORUS_COMPILE_DUMP", str(tmp_path))
    compiled(network, name="dumped", serializable=False)(torch.randn(3, 8, device=device))
    assert sorted(p.name for p in (tmp_path / "dumped").iterdir()) == [
        "cost.txt",
        "fx.txt",
        "optimized.hlo",
        "stablehlo.mlir",
    ]


def test_what_is_not_to_be_kept_is_compiled_again(device: str) -> None:
    """Equal graphs share a program in memory; a cleared memory finds nothing on disk."""
    x = torch.randn(5, device=device)

    def call() -> int:
        torch._dynamo.reset()
        before = torch.tpu.counters()["compiles"]
        torch.compile(lambda v: (v * 3 - 1).tanh(), backend="tpu", options={"serializable": False})(x)
        return int(torch.tpu.counters()["compiles"] - before)

    assert call() == 1
    assert call() == 0
    torch.tpu.cache.clear(disk=False)
    assert call() == 1


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_modes_give_the_same_values(network: nn.Module, device: str, mode: str) -> None:
    x = torch.randn(3, 8, device=device)
    torch.testing.assert_close(compiled(network, mode)(x), network(x))


def test_reduce_overhead_checks_no_indices(device: str) -> None:
    table = torch.randn(4, 2, device=device)
    index = torch.tensor([1, 9], device=device)

    def look_up(i: torch.Tensor) -> torch.Tensor:
        return table.index_select(0, i)

    assert torch.compile(look_up, backend="tpu", mode="reduce-overhead")(index).cpu().shape == (2, 2)
    torch._dynamo.reset()
    result = torch.compile(look_up, backend="tpu")(index)
    with pytest.raises(IndexError, match=r"index 9 is out of bounds.*\n.*test_options\.py"):
        result.cpu()


def test_an_option_of_the_compiler_that_does_not_exist(device: str) -> None:
    x = torch.ones(3, device=device)
    with torch.tpu.compiler.custom_compiler_options({"xla_nonsense": 1}):
        function = torch.compile(lambda v: v - 7, backend="tpu", options={"fallback": False})
        with pytest.raises(torch.tpu.compiler.CompileError, match="xla_nonsense"):
            function(x)


def test_options_of_the_compiler_make_a_program_of_their_own(device: str) -> None:
    x = torch.randn(3, device=device)
    seen: list[Any] = []
    for options in ({}, {"xla_cpu_use_fusion_emitters": False}):
        torch._dynamo.reset()
        function = torch.compile(
            lambda v: v.exp() / 3,
            backend="tpu",
            options={"compiler_options": options, "debug_callback": seen.append, "serializable": False},
        )
        torch.testing.assert_close(function(x).cpu(), x.cpu().exp() / 3)
    assert len({program.name for program in seen}) == 2


def test_without_a_backend_the_error_says_what_to_write(device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception, match=r'torch\.compile\(f, backend="tpu"\)'):
            torch.compile(lambda v: v.sin() + 1)(torch.ones(3, device=device))


def test_the_default_backend_can_be_this_one(device: str) -> None:
    torch.compiler.set_default_backend("tpu")
    try:
        x = torch.randn(4, device=device)
        torch.testing.assert_close(torch.compile(lambda v: v.sin() + 1)(x).cpu(), x.cpu().sin() + 1)
    finally:
        torch.compiler.set_default_backend(None)
