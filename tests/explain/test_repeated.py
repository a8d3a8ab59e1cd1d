"""A service that explains all day: memory is flat, nothing is left on the model, and nothing is compiled again."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

from torus.explain import explain

METHODS = {
    "saliency": {},
    "shapley_sampling": {"permutations": 4, "segments": torch.arange(6) // 2},
    "kernel_shap": {"samples": 12},
    "occlusion": {"window": (2,)},
}
CHUNK = 4
"""All methods ask for so many copies, so that their programs are the same."""


def left(net: nn.Module) -> dict[str, int]:
    """Tensors alive, bytes alive on the device, and what is on the modules."""
    while gc.collect():  # what a finalizer lets go of is garbage of the next round
        pass
    torch.tpu.synchronize()
    return {
        "tensors": sum(issubclass(type(item), torch.Tensor) for item in gc.get_objects()),
        "bytes": torch.tpu.memory_allocated(),
        "hooks": sum(len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in net.modules()),
        "attributes": sum(len(vars(module)) for module in net.modules()),
    }


@pytest.mark.parametrize(
    ("where", "mode", "calls"), [("cpu", "default", 1000), ("tpu", "strict", 32), ("tpu", "fused", 32)]
)
def test_a_thousand_calls_leave_nothing(
    where: str, mode: str, calls: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.tpu, "fusing", "foreground")  # nothing is compiled later
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2)).eval().to(where)
    x = torch.randn(2, 6).to(where)

    def some(count: int) -> int | None:
        compiles = 0
        for call in range(count):
            name, options = list(METHODS.items())[call % len(METHODS)]
            layer = "1" if call // len(METHODS) % 2 else None
            found = explain(net, x, call % 2, method=name, layer=layer, mode=mode, chunk=CHUNK, **options)
            compiles += found.certificate.compiles or 0
        return compiles

    while some(16):  # fused programs are compiled in the background, while their ops still run one by one
        torch.tpu.synchronize()
    before = left(net)
    assert some(calls) == 0
    grown = {name: count - before[name] for name, count in left(net).items()}
    assert all(growth <= 0 for growth in grown.values()), grown  # other tests' tensors may go meanwhile
    assert before["hooks"] == 0
