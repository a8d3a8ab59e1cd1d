"""What PyTorch's compiler does not do by itself: ranges with one open end, layouts of convolutions, groups."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.compile.compare import agree, compiled, moved, randn, same

NHWC = torch.channels_last


@pytest.mark.parametrize("ends", [{"max": 40}, {"min": 2}, {"min": 3, "max": 40}])
def test_a_range_with_one_end_only(ends: dict[str, int]) -> None:
    fn = compiled(lambda x: x.softmax(0).sum(0), serializable=False)
    count = len(torch.tpu.compiler.programs())
    for n in (5, 9, 12):
        x = moved(randn(n, 3), "tpu")
        torch._dynamo.mark_dynamic(x, 0, **ends)
        same(fn(x).cpu(), x.cpu().softmax(0).sum(0))
    assert len(torch.tpu.compiler.programs()) - count <= 2


def test_a_size_beyond_the_end_is_refused() -> None:
    x = torch.ones(50, 3, device="tpu")
    torch._dynamo.mark_dynamic(x, 0, max=40)
    with pytest.raises(Exception, match="40"):
        compiled(lambda x: x * 2)(x)


@pytest.mark.parametrize("which", ["input", "weight", "both", "neither"])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_keep_channels_last(which: str, transposed: bool) -> None:
    """Results and gradients, in eager mode's layout, which is the CPU's."""
    x, w = randn(2, 3, 8, 8), randn(3, 3, 3, 3)
    if which in ("input", "both"):
        x = x.contiguous(memory_format=NHWC)
    if which in ("weight", "both"):
        w = w.contiguous(memory_format=NHWC)
    conv = nn.functional.conv_transpose2d if transposed else nn.functional.conv2d
    agree(lambda x, w: conv(x, w, padding=1).relu(), x, w, backward=True, tolerance=1e-5)


@pytest.mark.parametrize("sizes", [((8, 8), (2, 8, 4)), ((2, 4, 8), (8, 8)), ((4, 8), (8, 4))], ids=["23", "32", "22"])
def test_products_of_groups_in_every_dtype(sizes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """PyTorch's fake kernel takes bfloat16 only; experts of transformers call it in float32 on this device."""
    ends = torch.tensor([4, 8], dtype=torch.int32)
    fn = lambda a, b: nn.functional.grouped_mm(a, b, offs=ends.to(a.device))  # noqa: E731
    agree(fn, randn(*sizes[0]), randn(*sizes[1]), backward=True)


def test_a_hook_added_after_the_first_call_counts() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).to("tpu")
    fn = compiled(model, fallback=True)
    x = torch.ones(2, 3, device="tpu")
    first = fn(x)
    model[1].register_forward_hook(lambda module, args, out: out + 1)
    same(fn(x), first + 1)
