"""A sample of the sweep that compiles every rule's program for a TPU; `make test-conformance` has all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("libtpu", reason="libtpu, which has the TPU compiler, is not installed")

from torus.twin.compiler import Compiler
from torus.twin.rules import Sweep
from torus.twin.topology import Topology


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(Compiler(Topology.parse("v6e:1x1"), tmp_path))


def test_programs_of_the_device_compile_for_a_tpu(sweep: Sweep) -> None:
    x = torch.arange(35.0, device="tpu").view(5, 7).requires_grad_()
    with sweep:
        torch.nn.functional.layer_norm(x, (7,)).sum().backward()
        torch.sort(x.detach(), dim=1)
        torch.linalg.qr(x.detach())
    assert {"aten::native_layer_norm", "aten::native_layer_norm_backward", "aten::sort"} <= set(sweep.found)
    assert not [each for each in sweep.found.values() if not each.passes]


def test_a_double_precision_fourier_transform_is_the_cpus_where_there_is_a_tpu(sweep: Sweep) -> None:
    with sweep:
        torch.fft.fft(torch.ones(4, dtype=torch.float64, device="tpu"))
    assert "TPUs have none" in str(sweep.found["aten::_fft_r2c"].failed)


def test_what_a_tpu_cannot_do_is_found_with_the_reason(sweep: Sweep) -> None:
    x = torch.arange(25.0, device="tpu").view(5, 5)
    with sweep:
        torch.linalg.eigvals(x)
    (words,) = sweep.found["aten::_linalg_eigvals"].failed.values()
    assert "XLA has none for this platform" in words
