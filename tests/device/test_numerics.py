from __future__ import annotations

import pytest
import torch
from torch.tpu import Precision


@pytest.fixture(autouse=True)
def _follow_torch():
    yield
    from torus.backend.device import numerics

    numerics._set(numerics._FOLLOW_TORCH)
    torch.set_float32_matmul_precision("highest")
    torch.tpu.allow_excess_precision = True


def test_right_comes_first():
    assert torch.tpu.get_precision() is Precision.HIGHEST


@pytest.mark.parametrize(
    ("name", "precision"), [("highest", Precision.HIGHEST), ("high", Precision.HIGH), ("medium", Precision.DEFAULT)]
)
def test_it_follows_torch(name, precision):
    torch.set_float32_matmul_precision(name)
    assert torch.tpu.get_precision() is precision


@pytest.mark.parametrize("value", [Precision.HIGH, "high", "HIGH"])
def test_context_manager(value):
    with torch.tpu.precision(value) as precision:
        assert precision is torch.tpu.get_precision() is Precision.HIGH
        with torch.tpu.precision(Precision.DEFAULT):
            assert torch.tpu.get_precision() is Precision.DEFAULT
        assert torch.tpu.get_precision() is Precision.HIGH
    assert torch.tpu.get_precision() is Precision.HIGHEST


def test_function():
    torch.tpu.precision("default")
    assert torch.tpu.get_precision() is Precision.DEFAULT
    torch.set_float32_matmul_precision("highest")
    assert torch.tpu.get_precision() is Precision.DEFAULT


def test_wrong_values():
    with pytest.raises(ValueError, match="'default', 'high', 'highest'"):
        torch.tpu.precision("exact")
    with pytest.raises(TypeError):
        torch.tpu.allow_excess_precision = 1


def test_precision_is_part_of_a_program():
    a = torch.randn(8, 8)
    x = a.to("tpu")
    torch.testing.assert_close((x @ x).cpu(), a @ a)
    before = torch.tpu.cache.stats()["signatures"]
    with torch.tpu.precision("default"):
        torch.testing.assert_close((x @ x).cpu(), a @ a, rtol=2e-2, atol=2e-2)
    assert torch.tpu.cache.stats()["signatures"] > before


def test_excess_precision_is_a_compiler_option():
    from torus.backend.device.numerics import compiler_options

    x = torch.randn(7, 5, device="tpu", dtype=torch.bfloat16)
    expected = torch.softmax(x, 1).cpu()
    torch.tpu.allow_excess_precision = False
    assert not torch.tpu.allow_excess_precision
    assert compiler_options() == {"xla_allow_excess_precision": False}
    torch.testing.assert_close(torch.softmax(x, 1).cpu(), expected)
    torch.tpu.allow_excess_precision = True
    assert compiler_options() == {}
