from __future__ import annotations

import pytest

from tests.device.process import run

pytestmark = pytest.mark.slow

CODE = """
    import torch, torus
    x = torch.ones(3, 5, device="tpu")
    (x * 2 + 1).sum().item()
    stats = torch.tpu.cache.stats()
    print(stats["compiles"] > 0, torch.tpu.counters()["compiles"] > 0, len(torch.tpu.cache.explain()) > 0)
"""


def test_a_second_process_compiles_nothing(tmp_path):
    assert run(CODE, TORUS_CACHE_DIR=str(tmp_path)) == "True True True"
    assert run(CODE, TORUS_CACHE_DIR=str(tmp_path)) == "False False False"


def test_clear(tmp_path):
    code = """
        import torch, torus
        x = torch.ones(3, 5, device="tpu")
        y = x * 2
        assert torch.tpu.cache.stats()["signatures"] > 0 and torch.tpu.cache.stats()["entries"] > 0
        torch.tpu.cache.clear()
        assert torch.tpu.cache.stats()["signatures"] == 0 == torch.tpu.cache.stats()["entries"]
        y = x * 2
        assert torch.tpu.cache.stats()["compiles"] == 1
        assert torch.tpu.cache.explain()[0]["why"]
        print(y.sum().item())
    """
    assert run(code, TORUS_CACHE_DIR=str(tmp_path)) == "30.0"


def test_programs_from_disk_serve_every_device(tmp_path):
    # XLA:CPU cannot serialize again what it has loaded, so each device must load the entry itself.
    code = """
        import torch, torus
        print([(torch.ones(3, device=f"tpu:{i}") * 2).tolist() for i in (1, 0)], torch.tpu.counters()["compiles"])
    """
    options = {"TORUS_CACHE_DIR": str(tmp_path), "TORUS_DEVICE_COUNT": "2", "TORUS_PLATFORM": "cpu"}
    first = run(code, **options)
    assert first.startswith("[[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]") and not first.endswith(" 0")
    assert run(code, **options) == "[[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]] 0"
