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
        torch.testing.assert_close((x @ x).cpu(), a @ a, rtol=2e-2, atol=5e-2)
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


def bfloat16_passes(multiply, a, b, passes):
    """What a matrix unit makes of a product: inputs as sums of bfloat16 numbers, added up in float32."""
    high_a, high_b = a.bfloat16().float(), b.bfloat16().float()
    if passes == 1:
        return multiply(high_a, high_b)
    low_a, low_b = (a - high_a).bfloat16().float(), (b - high_b).bfloat16().float()
    return multiply(high_a, high_b) + multiply(high_a, low_b) + multiply(low_a, high_b)


PRODUCTS = {
    "mm": (torch.mm, (9, 31), (31, 5)),
    "bmm": (torch.bmm, (2, 9, 31), (2, 31, 5)),
    "conv2d": (torch.nn.functional.conv2d, (2, 3, 9, 8), (4, 3, 3, 3)),
    "conv_transpose2d": (torch.nn.functional.conv_transpose2d, (2, 3, 9, 8), (3, 4, 3, 3)),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize(("said", "passes"), [("default", 1), ("high", 3)])
def test_it_means_the_passes_of_a_matrix_unit_everywhere(name, said, passes):
    multiply, *shapes = PRODUCTS[name]
    torch.manual_seed(0)
    a, b = (torch.randn(shape) for shape in shapes)
    with torch.tpu.precision(said):
        found = multiply(a.to("tpu"), b.to("tpu")).cpu()
    torch.testing.assert_close(found, bfloat16_passes(multiply, a, b, passes), rtol=1e-6, atol=2e-6)
    exact = multiply(a.double(), b.double())
    error = ((found - exact).abs().max() / exact.abs().max()).item()
    assert (1e-4 < error < 2e-2) if passes == 1 else (error < 4e-5)


def test_infinities_stay_in_three_passes():
    a = torch.tensor([[float("inf"), 1.0], [3e38, 2.0]])
    with torch.tpu.precision("high"):
        found = (a.to("tpu") @ torch.eye(2, device="tpu")).cpu()
    assert found[0, 0] == float("inf")
    assert found[1, 1] == 2.0


def test_what_pytorch_allows_changes_nothing_without_a_faster_unit():
    torch.set_float32_matmul_precision("medium")
    a = torch.randn(16, 16)
    torch.testing.assert_close((a.to("tpu") @ a.to("tpu")).cpu(), a @ a, rtol=2e-6, atol=2e-6)
