from __future__ import annotations

import pytest
import torch

VALUES = [
    torch.arange(6).reshape(2, 3),
    torch.tensor([1.5, float("nan"), -float("inf"), 0.0]),
    torch.tensor(3.25),
    torch.tensor([True, False]),
    torch.tensor([1e-8, 1e8]),
    torch.tensor([1 + 2j]),
    torch.empty(0, 3),
    torch.linspace(0, 1, 5000).reshape(50, 100),
    torch.ones(3, dtype=torch.bfloat16),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda v: f"{v.dtype}{list(v.shape)}")
def test_prints_as_the_cpu_does(value):
    shown = repr(value.to("tpu"))
    assert "device='tpu:0'" in shown
    plain = shown.replace("device='tpu:0'", "").replace(", )", ")")
    assert "".join(plain.split()).replace(",,", ",").replace(",)", ")") == "".join(repr(value).split())


def test_other_forms():
    x = torch.ones(2, device="tpu", requires_grad=True)
    assert "requires_grad=True" in repr(x)
    assert "grad_fn=<MulBackward0>" in str(x * 2)
    assert repr(torch.nn.Parameter(x.detach())).startswith("Parameter containing:")
    assert f"{torch.tensor(2.5, device='tpu'):.2f}" == "2.50"


def test_printing_compiles_nothing_for_new_values():
    repr(torch.tensor([1.0, 2.0, 0.0], device="tpu"))
    torch.tpu.reset_counters()
    repr(torch.tensor([3.0, 0.0, 4.0], device="tpu"))
    assert torch.tpu.counters()["compiles"] == 0
