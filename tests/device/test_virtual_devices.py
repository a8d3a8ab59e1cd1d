"""Several virtual devices on the host platform, used from one process."""

from __future__ import annotations

import json

import pytest

from tests.device.process import run

pytestmark = pytest.mark.slow

CODE = """
import json, torch, torus

def error(f):
    try:
        f()
    except RuntimeError as e:
        return str(e)

x = torch.arange(3.0, device="tpu:2", requires_grad=True)
layer = torch.nn.Linear(3, 3).to("tpu:1")
layer(x.to("tpu:1")).sum().backward()
with torch.tpu.device(3):
    scoped = torch.zeros(2, device="tpu").device
torch.manual_seed(0)
draws = [torch.rand(4, device=f"tpu:{i}").tolist() for i in range(4)]
print(json.dumps({
    "count": torch.tpu.device_count(),
    "result": [str((x + 1).device), (x + 1).tolist()],
    "moved": [str(x.to("tpu:1").device), x.to("tpu:1").tolist()],
    "gradient": [str(x.grad.device), torch.allclose(x.grad.cpu(), layer.weight.detach().sum(0).cpu())],
    "scoped": str(scoped),
    "after": torch.tpu.current_device(),
    "mixed": error(lambda: x + torch.ones(3, device="tpu:0")),
    "absent": error(lambda: torch.ones(3, device="tpu:4")),
    "memory": [torch.tpu.memory_allocated(i) > 0 for i in (1, 2)],
    "same draws": draws[0] == draws[3],
}))
"""


@pytest.fixture(scope="module")
def found() -> dict:
    return json.loads(run(CODE, TORUS_DEVICE_COUNT="4", TORUS_PLATFORM="cpu").splitlines()[-1])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("count", 4),
        ("result", ["tpu:2", [1.0, 2.0, 3.0]]),
        ("moved", ["tpu:1", [0.0, 1.0, 2.0]]),
        ("gradient", ["tpu:2", True]),
        ("scoped", "tpu:3"),
        ("after", 0),
        ("memory", [True, True]),
        ("same draws", True),
    ],
)
def test_virtual_devices(found: dict, name: str, expected: object) -> None:
    assert found[name] == expected


@pytest.mark.parametrize(
    ("name", "words"),
    [("mixed", ("same device", "tpu:2", "tpu:0", "add")), ("absent", ("tpu:4", "TORUS_DEVICE_COUNT"))],
)
def test_a_wrong_device_is_named(found: dict, name: str, words: tuple[str, ...]) -> None:
    assert all(word in found[name] for word in words)
