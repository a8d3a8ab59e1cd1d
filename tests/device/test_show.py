"""``torch.tpu.show``: what a pending tensor stands for."""

from __future__ import annotations

import pytest
import torch
from torch.tpu import EagerMode

from tests.device.lines import line_of
from torus import _C, runtime
from torus.backend.eager.report import shorten


@pytest.fixture(autouse=True)
def _restored():
    mode, fusing = torch.tpu.eager_mode, torch.tpu.fusing
    torch.tpu.eager_mode, torch.tpu.fusing = EagerMode.DEFER_AND_FUSE, "foreground"
    yield
    torch.tpu.synchronize()
    torch.tpu.eager_mode, torch.tpu.fusing = mode, fusing


@pytest.fixture
def x():
    tensor = torch.arange(16.0).reshape(4, 4).to("tpu")
    torch.tpu.synchronize()
    return tensor


def branches(x, other):
    a = x + x
    b = a.relu()
    c = other * 2
    return b, c, a @ c


def test_code_has_only_what_the_tensor_needs(x):
    other = torch.ones(4, 4, dtype=torch.float64, device="tpu").to(torch.float32)
    torch.tpu.synchronize()
    with torch.tpu.explain():
        b, c, product = branches(x, other)
        first, second, third = (str(torch.tpu.show(tensor)).splitlines() for tensor in (b, c, product))
    place = {what: shorten(line_of(branches, what)) for what in ("x + x", "a.relu()", "other * 2", "a @ c")}
    assert first == [
        "# float32[4, 4] on tpu:0, pending: needs 2 of 4 recorded ops",
        "%arg0: float32[4, 4]",
        f"%0 = aten::add.Tensor(%arg0, %arg0)  # float32[4, 4]  {place['x + x']}",
        f"%1 = aten::relu(%0)  # float32[4, 4]  {place['a.relu()']}",
        "return %1",
    ]
    assert second[-2:] == [
        f"%0 = aten::mul.Tensor(%arg0, <numbers>)  # float32[4, 4]  {place['other * 2']}",
        "return %0",
    ]
    assert third[2:4] == ["%arg0: float32[4, 4]", "%arg1: float32[4, 4]"]
    assert third[-2:] == [f"%2 = aten::mm(%0, %1)  # float32[4, 4]  {place['a @ c']}", "return %2"]


def test_lines_are_left_out_where_they_are_not_kept(x):
    assert torch.tpu.show(x.relu()).splitlines()[-2] == "%0 = aten::relu(%arg0)  # float32[4, 4]"


def test_code_of_several_results_of_views_and_of_writes(x):
    values, indices = x.max(dim=1)
    shown = torch.tpu.show(indices[1:])
    assert "%0, %1 = aten::max.dim(%arg0)  # float32[4], int64[4]" in shown
    assert shown.endswith("return %1  # as int64[3], strides [1], offset 1")
    x.add_(1)
    assert "# float32[4, 4] in place" in torch.tpu.show(x)
    del values


def test_dtypes_of_arguments_are_pytorchs():
    for dtype in (torch.bool, torch.bfloat16, torch.uint8, torch.int64, torch.float16, torch.complex64):
        tensor = torch.ones(2, 3).to(dtype).to("tpu")
        torch.tpu.synchronize()
        name = str(dtype).removeprefix("torch.")
        assert f"%arg0: {name}[2, 3]" in torch.tpu.show(tensor.flip(0)).splitlines()


def test_showing_runs_nothing(x):
    y = x.relu()
    before = torch.tpu.counters()
    torch.tpu.show(y)
    torch.tpu.show(y, "stablehlo")
    assert torch.tpu.counters() == before and _C.pending_ops(y) is not None


def test_stablehlo_is_a_module_of_what_the_tensor_needs(x):
    other = torch.ones(4, 4, device="tpu").cos()
    product = (x + x) @ other
    other.sin()
    text = torch.tpu.show(product, what="stablehlo")
    assert "stablehlo.dot_general" in text and "stablehlo.cosine" in text and "stablehlo.sine" not in text
    assert text.count("call @f") == 4 and "@main(%arg0: tensor<4x4xf32>, %pack:" in text
    program = runtime.programs.get_or_compile(str(text), [((4, 4), "float32")])
    assert program.out_avals == [((4, 4), "float32")]


def test_a_prompt_shows_lines(x):
    shown = torch.tpu.show(x.relu())
    assert repr(shown) == str(shown) and "\n" in repr(shown)


def test_a_computed_tensor_says_so(x):
    assert torch.tpu.show(x) == "computed: float32[4, 4] on tpu:0, nothing pending"
    assert torch.tpu.show(x[0], "stablehlo") == "computed: float32[4] on tpu:0, nothing pending"
    assert torch.tpu.show(torch.empty(2, device="tpu")) == "computed: float32[2] on tpu:0, nothing pending"


def test_a_failed_tensor_raises(x):
    y = x.index_select(0, torch.tensor([7], device="tpu"))
    with pytest.raises(IndexError, match="out of bounds"):
        y.cpu()
    with pytest.raises(IndexError, match="out of bounds"):
        torch.tpu.show(y)


def test_what_show_refuses(x):
    with pytest.raises(ValueError, match=r'this tensor is on "cpu"; move what it is made from with \.to\("tpu"\)'):
        torch.tpu.show(torch.ones(2))
    with pytest.raises(ValueError, match="what is one of 'code', 'stablehlo', not 'hlo'"):
        torch.tpu.show(x, "hlo")
    with pytest.raises(TypeError, match="expected a tensor, got int"):
        torch.tpu.show(3)
