"""The shared store, cache-only mode and dumps, as users of the device see them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.device.process import run

pytestmark = pytest.mark.slow

WORK = """
    import torch, torus
    def work():
        x = torch.arange(12.0, device="tpu").reshape(3, 4)
        return ((x * 2 + 1).softmax(-1) @ x.t()).sum().item()
    print(round(work(), 3))
"""
COUNTS = """
    s = torch.tpu.cache.stats()
    assert s["requests"] == s["memory_hits"] + s["disk_hits"] + s["shared_hits"] + s["misses"]
    print(s["compiles"], s["shared_hits"] > 0)
"""


def machine(tmp_path: Path, name: str, **variables: str) -> dict[str, str]:
    """The variables of a machine whose disk is empty at first and which has the shared store."""
    own = {"TORUS_CACHE_DIR": str(tmp_path / name), "TORUS_PREFETCH": "0", "TORUS_FUSING": "foreground"}
    return own | {"TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT": str(tmp_path / "shared")} | variables


UPGRADE = """
    import torch, torus
    from torus.backend.eager import seam
    seam._fingerprint = lambda: "another version"
"""


@pytest.mark.parametrize("fused", ["0", "1"])
def test_another_machine_and_another_version_compile_nothing(tmp_path, fused):
    """The signatures of another version are new, since its code is; programs with the same text are not."""
    mode = {"TORCH_TPU_DEFER_AND_FUSE": fused}
    value, compiles, found = run(WORK + COUNTS, **machine(tmp_path, "one", **mode)).split()
    assert compiles != "0" and found == "False"
    only = {"TORUS_CACHE_ONLY": "1"}
    assert run(WORK + COUNTS, **machine(tmp_path, "two", **mode, **only)).split() == [value, "0", "True"]
    hits = "    print(torch.tpu.cache.stats()['signature_hits'])\n"
    upgraded = run(UPGRADE + WORK + hits + COUNTS, **machine(tmp_path, "three", **mode))
    assert upgraded.split() == [value, "0", "0", "True"]


def test_cache_only_dumps_and_flushing(tmp_path):
    code = """
        import torch, torus
        x = torch.ones(3, device="tpu")
        y = x + 1
        with torch.tpu.cache.cache_only():
            print((x + 1).tolist())
            try:
                x.cos()
            except torch.tpu.cache.CacheMiss as error:
                print(error)
        torch.tpu.cache.dump_misses("FOLDER")
        print(len(torch.tpu.cache.explain()[-1]["program"]), round(x.cos()[0].item(), 3))
        print(torch.tpu.cache.flush(30), torch.tpu.cache.stats()["uploads_pending"])
    """
    lines = run(code.replace("FOLDER", str(tmp_path / "dump")), **machine(tmp_path, "one")).splitlines()
    assert lines[0] == "[2.0, 2.0, 2.0]" and lines[2:] == ["64 0.54", "True 0"]
    assert "(cosine) is not in the cache" in lines[1] and "new program" in lines[1]
    (cosine,) = [r for r in map(_read, (tmp_path / "dump").glob("*.json")) if r["summary"] == "cosine"]
    assert cosine["why"] == "new program" and cosine["out_avals"] == [[[3], "float32"]]
    assert "stablehlo.cosine" in (tmp_path / "dump" / cosine["file"]).read_text()


def _read(path: Path) -> dict:
    return json.loads(path.read_text())
