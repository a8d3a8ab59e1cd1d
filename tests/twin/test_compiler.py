"""The TPU compiler in its process: what it gives, what it says when it cannot, and that it ends when it must."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("libtpu", reason="libtpu, which has the TPU compiler, is not installed")

from torus.twin.compiler import CompileError, Compiler, CompilerDied, CompilerMissing, CompileTimeout, DoesNotFit
from torus.twin.compiler.service import Service, service
from torus.twin.topology import Topology

PRODUCT = """module @torus attributes {{mhlo.num_partitions = {devices} : i32, mhlo.num_replicas = 1 : i32}} {{
  sdy.mesh @mesh = <["data"={devices}]>
  func.func public @main(
    %arg0: tensor<{rows}x256xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"data"}}, {{}}]>}},
    %arg1: tensor<256x256xf32>
  ) -> (tensor<{rows}x256xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"data"}}, {{}}]>}}, tensor<f32>) {{
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0]
      : (tensor<{rows}x256xf32>, tensor<256x256xf32>) -> tensor<{rows}x256xf32>
    %c = stablehlo.constant dense<0.0> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %c) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<{rows}x256xf32>, tensor<f32>) -> tensor<f32>
    return %0, %1 : tensor<{rows}x256xf32>, tensor<f32>
  }}
}}"""


def _product(devices: int = 1, rows: int = 256) -> str:
    return PRODUCT.format(devices=devices, rows=rows)


@pytest.fixture
def compiler(tmp_path: Path) -> Compiler:
    return Compiler(Topology.parse("v6e:1x1"), cache=tmp_path)


@pytest.fixture
def own_service() -> Iterator[Service]:
    """A process that a test may end."""
    mine = Service()
    yield mine
    mine.stop()


def test_a_program_has_the_memory_of_its_arguments_and_results(compiler: Compiler) -> None:
    memory = compiler.compile(_product()).memory
    assert memory["argument_size_in_bytes"] == 2 * 256 * 256 * 4
    assert memory["output_size_in_bytes"] >= 256 * 256 * 4


def test_a_program_has_the_flops_of_its_product(compiler: Compiler) -> None:
    assert compiler.compile(_product()).cost["flops"] == pytest.approx(2 * 256**3, rel=0.01)


def test_a_mesh_splits_the_arguments(tmp_path: Path) -> None:
    found = Compiler(Topology.parse("v6e:2x2"), cache=tmp_path).compile(_product(devices=4))
    assert found.memory["argument_size_in_bytes"] == (256 // 4 + 256) * 256 * 4
    assert "all-reduce" in found.hlo


def test_what_was_compiled_is_not_compiled_again(compiler: Compiler, tmp_path: Path) -> None:
    class Closed(Service):
        def ask(self, *args: object) -> dict[str, object]:
            raise AssertionError("a program was compiled that is in the cache")

    first = compiler.compile(_product())
    assert Compiler(compiler.topology, tmp_path, Closed()).compile(_product()) == first
    assert first.serialized


def test_a_program_that_does_not_fit_says_what_it_needs(compiler: Compiler) -> None:
    with pytest.raises(DoesNotFit, match="exceeds available HBM") as caught:
        compiler.compile(_product(rows=2**26))
    assert caught.value.needed == 2 * 2**26 * 256 * 4
    assert caught.value.available == pytest.approx(compiler.topology.chip.hbm_bytes, rel=0.001)


def test_a_refusal_is_kept_too(compiler: Compiler) -> None:
    with pytest.raises(CompileError, match="not_an_op"):
        compiler.compile("module { not_an_op }")
    assert compiler.is_known("module { not_an_op }")


def test_a_program_for_more_devices_than_there_are_is_refused(compiler: Compiler) -> None:
    with pytest.raises(CompileError, match="for 4 devices, and the topology has 1"):
        compiler.compile(_product(devices=4))


def test_a_time_out_stops_the_compiler_and_the_next_program_has_a_new_one(tmp_path: Path, own_service: Service) -> None:
    compiler = Compiler(Topology.parse("v6e:1x1"), tmp_path, own_service)
    with pytest.raises(CompileTimeout, match=r"longer than 0\.01 s"):
        compiler.compile(_product(), timeout=0.01)
    assert compiler.compile(_product()).seconds > 0


def test_ctrl_c_stops_the_compiler(tmp_path: Path, own_service: Service) -> None:
    compiler = Compiler(Topology.parse("v6e:1x1"), tmp_path, own_service)
    press = threading.Timer(0.3, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
    press.start()  # the compiler's process takes longer to start
    with pytest.raises(KeyboardInterrupt):
        compiler.compile(_product())
    assert own_service._process is None


def test_a_compiler_that_dies_leaves_its_last_words(tmp_path: Path, own_service: Service, monkeypatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_no_such_flag=1")
    with pytest.raises(CompilerDied, match="xla_no_such_flag"):
        Compiler(Topology.parse("v6e:1x1"), tmp_path, own_service).compile(_product())


def test_without_libtpu_the_error_says_what_to_install(compiler: Compiler, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CompilerMissing, match=r"pip install 'torus\[tpu\]'"):
        compiler.compile(_product())


def test_this_process_does_not_load_libtpu(compiler: Compiler) -> None:
    compiler.compile(_product())
    assert "libtpu.so" not in Path("/proc/self/maps").read_text()


def test_the_compiler_ends_with_the_process_that_started_it() -> None:
    code = (
        "import os, sys; sys.orig_argv = ['', '-m', 'torus'];"  # does not import PyTorch
        "from torus.twin.compiler.service import service;"
        "service._started(); print(service._process.pid, flush=True); os._exit(1)"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True).stdout
    limit = time.monotonic() + 10
    while os.path.exists(f"/proc/{printed.strip()}") and time.monotonic() < limit:
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{printed.strip()}")


def test_two_topologies_share_a_process(tmp_path: Path) -> None:
    found = set()
    for name in ("v6e:1x1", "v5e:1x1"):
        Compiler(Topology.parse(name), cache=tmp_path).compile(_product())
        found.add(service._process.pid if service._process else None)
    assert len(found) == 1
