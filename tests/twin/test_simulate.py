"""``TORUS_SIMULATE``: the host stands in for a slice of TPU chips."""

from __future__ import annotations

import pytest

from tests.device.process import run
from torus import settings
from torus.runtime import platform
from torus.twin.chips import CHIPS
from torus.twin.topology import GRIDS, Topology


@pytest.mark.parametrize(
    ("text", "name", "devices"),
    [
        ("v6e-4", "v6e:2x2", 4),
        ("V6E:2x2", "v6e:2x2", 4),
        ("v5litepod-8", "v5e:2x4", 8),
        ("v5p-8", "v5p:2x2x1", 4),
        ("tpu7x-8", "tpu7x:2x2x1", 8),
    ],
)
def test_slices_have_the_names_of_their_vendor(
    monkeypatch: pytest.MonkeyPatch, text: str, name: str, devices: int
) -> None:
    monkeypatch.setenv("TORUS_SIMULATE", text)
    for variable in ("TORUS_DEVICE_COUNT", "TORUS_HBM_LIMIT", "TORUS_PLATFORM"):
        monkeypatch.delenv(variable, raising=False)
    simulated = settings.get("simulate")
    assert simulated.name == name
    assert platform.choose() == "cpu"
    assert platform.count("cpu") == simulated.devices == devices
    assert settings.get("hbm_limit") == simulated.chip.hbm_bytes


def test_every_slice_has_one_number() -> None:
    for family, grids in GRIDS.items():
        cores = {"v5p": 2, "tpu7x": 2}.get(family, 1)
        assert [Topology.parse(f"{family}-{Topology(CHIPS[family], g).chips * cores}").grid for g in grids] == list(
            grids
        )


@pytest.mark.parametrize(
    ("text", "exists"),
    [("v6e-5", "v6e-1, v6e-4, v6e-8"), ("v9-4", "v5e-1, .*tpu7x-8"), ("v6e:3x3", "1x1, 2x2, 2x4"), ("v9:2x2", "v5e, ")],
)
def test_a_slice_that_does_not_exist_lists_those_that_do(
    monkeypatch: pytest.MonkeyPatch, text: str, exists: str
) -> None:
    monkeypatch.setenv("TORUS_SIMULATE", text)
    with pytest.raises(ValueError, match=f"TORUS_SIMULATE='{text}' .*{exists}"):
        settings.get("simulate")


def test_other_settings_outrank_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORUS_SIMULATE", "v6e-4")
    monkeypatch.setenv("TORUS_DEVICE_COUNT", "2")
    monkeypatch.setenv("TORUS_HBM_LIMIT", "1GiB")
    assert (platform.count("cpu"), settings.get("hbm_limit")) == (2, 2**30)
    monkeypatch.setenv("TORUS_PLATFORM", "cuda")
    with pytest.raises(RuntimeError, match="TORUS_PLATFORM=cuda cannot be used with TORUS_SIMULATE=v6e:2x2"):
        platform.choose()


def test_the_device_is_that_of_the_chip() -> None:
    said = run(
        """
        import torch, torus
        properties = torch.tpu.get_device_properties(3)
        print(torch.tpu.device_count(), torch.tpu.get_device_name(), properties.simulates, properties.platform)
        print(properties.total_memory == torch.tpu.memory_limit(3) == torch.tpu.mem_get_info(3)[1])
        torch.manual_seed(0)
        x = torch.randn(64, 64)
        exact = x.double() @ x.double()
        y = x.to("tpu:3")
        for allowed in ("highest", "high", "medium"):
            torch.set_float32_matmul_precision(allowed)
            error = ((y @ y).cpu().double() - exact).norm() / exact.norm()
            print(allowed, torch.tpu.get_precision().name, f"{error.log2().item():.0f}")
        """,
        TORUS_SIMULATE="v6e-4",
        TORUS_PLATFORM="",
        TORUS_DEVICE_COUNT="",
    )
    first, second, *precisions = said.splitlines()
    assert first == f"4 {CHIPS['v6e'].kind} v6e:2x2 cpu"
    assert second == "True"
    found = {line.split()[0]: (line.split()[1], int(line.split()[2])) for line in precisions}
    assert [found[p][0] for p in ("highest", "high", "medium")] == ["HIGHEST", "HIGH", "DEFAULT"]
    assert found["highest"][1] <= -21
    assert -19 <= found["high"][1] <= -15
    assert -10 <= found["medium"][1] <= -8
