from __future__ import annotations

import pytest
import torch

from tests.device.process import run, run_unchecked

pytestmark = pytest.mark.slow

KEYS = {"programs", "compiles", "cache_hits", "host_reads", "host_writes", "fallbacks", "flushes"}


@pytest.fixture(autouse=True)
def _mode():
    previous = torch.tpu.cpu_fallback
    yield
    torch.tpu.cpu_fallback = previous


def test_what_one_op_costs():
    x = torch.ones(4, 4, device="tpu")
    x + x
    torch.tpu.reset_counters()
    assert torch.tpu.counters() == dict.fromkeys(KEYS, 0)
    y = x + x
    assert torch.tpu.counters() == {**dict.fromkeys(KEYS, 0), "programs": 1}
    y.cpu()
    assert torch.tpu.counters()["host_reads"] == 1
    torch.ones(3).to("tpu")
    assert torch.tpu.counters()["host_writes"] == 1


def test_a_new_signature_is_a_compile_or_a_hit():
    x = torch.ones(3, 17, device="tpu")
    torch.tpu.reset_counters()
    x * x
    counted = torch.tpu.counters()
    assert counted["compiles"] + counted["cache_hits"] >= 1


def test_fallbacks_are_counted_and_can_be_forbidden():
    x = torch.randn(4, 4, device="tpu")
    torch.tpu.reset_counters()
    torch.tpu.cpu_fallback = "silent"
    torch._dirichlet_grad(x, x, x)
    assert torch.tpu.fallbacks() == {"aten::_dirichlet_grad": 1}
    assert torch.tpu.counters()["fallbacks"] == 1
    torch.tpu.cpu_fallback = "error"
    with pytest.raises(NotImplementedError, match="aten::_dirichlet_grad has no lowering"):
        torch._dirichlet_grad(x, x, x)
    torch.tpu.reset_counters()
    assert torch.tpu.fallbacks() == {}
    with pytest.raises(ValueError, match="'warn', 'silent', 'error'"):
        torch.tpu.cpu_fallback = "never"


def test_a_fallback_warns_once():
    code = """
        import torch, torus
        x = torch.ones(2, 2, device="tpu")
        [torch._dirichlet_grad(x, x, x) for _ in range(3)]
    """
    assert run_unchecked(code).stderr.count("aten::_dirichlet_grad has no lowering") == 1
    assert run_unchecked(code, TORUS_CPU_FALLBACK="silent").stderr == ""


def test_initial_mode():
    code = "import torch, torus; print(torch.tpu.cpu_fallback)"
    assert run(code) == "warn"
    assert run(code, TORUS_CPU_FALLBACK="error") == "error"
    result = run_unchecked(code, TORUS_CPU_FALLBACK="never")
    assert result.stdout.strip() == "warn" and "TORUS_CPU_FALLBACK='never' is not understood" in result.stderr
