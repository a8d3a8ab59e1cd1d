"""Reading by index against CPU PyTorch."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import torch

from tests.lowering.agree import Case, agrees, label, run, unexercised
from tests.lowering.evaluate import evaluate
from torus.backend.lowering import indexing
from torus.backend.lowering import scatter as scatter  # registers the writing half of the cases
from torus.backend.lowering.apply import Context, tracing
from torus.backend.lowering.registry import RULES

pytestmark = pytest.mark.slow

aten = torch.ops.aten
X = torch.randn(4, 5, 6, 3, generator=torch.Generator().manual_seed(0))
AB, J = torch.tensor([[0, -1, 2], [3, 1, 1]]), torch.tensor([1, -2, 3], dtype=torch.int32)
K, ONE = torch.tensor([[2], [0]]), torch.tensor(1)
INDICES = [
    [AB],
    [None, J],
    [AB, J],
    [None, AB, K],
    [AB, None, K],
    [None, J, None, ONE],
    [ONE],
    [None, None, AB[:0]],
    [AB, J, K, ONE],
]
PICKS = torch.randint(0, 5, (3, 7, 6, 2), generator=torch.Generator().manual_seed(1))
MASK = torch.tensor([[True, False, True], [False, True, True]])
ROW = X[:, 0, 0, 0].contiguous()

CASES: list[Case] = [
    *[(aten.index.Tensor, X, i) for i in INDICES],
    (aten.index.Tensor, X.bfloat16(), [AB]),
    (aten.index.Tensor, torch.arange(5), [torch.tensor([4, -5])]),
    (aten._unsafe_index.Tensor, X, [None, J]),
    (aten._unsafe_masked_index.default, ROW, MASK, [torch.tensor([[0, 99, 2], [-99, 1, -1]])], 2.5),
    (aten.index_select.default, X, -2, torch.tensor([1, 0, 5], dtype=torch.int32)),
    (aten.index_select.default, torch.tensor(3.0), 0, torch.tensor([0])),
    (aten.index_select.default, X[:, :0], 0, torch.tensor([1])),
    (aten.gather.default, X, 1, PICKS),
    (aten.gather.default, X > 0, -3, PICKS),
    (aten.gather.default, torch.tensor(3.0), 0, torch.tensor([0, 0])),
    (aten.gather.default, torch.tensor([3.0, 4.0]), 0, ONE),
    (aten.take.default, X, torch.tensor([[0, -1], [100, 7]])),
    (aten.nonzero_static.default, X * (X > 0), {"size": 400}),
    (aten.nonzero_static.default, X * (X > 0), {"size": 10}),
    (aten.nonzero_static.default, torch.tensor([0, 3, 0]), {"size": 2, "fill_value": 7}),
    (aten.repeat_interleave.Tensor, torch.tensor([1, 0, 3, 2]), {"output_size": 6}),
    (aten.masked_scatter_backward.default, X, X > 0.3, [30, 10]),
]


@pytest.mark.parametrize("case", CASES, ids=label)
def test_reads(case: Case) -> None:
    run(case)


@pytest.mark.parametrize("mask", [torch.tensor([True, False, True, True]), torch.zeros(4, dtype=torch.uint8)])
def test_masks_are_left_to_what_reads_their_counts(mask: torch.Tensor) -> None:
    with pytest.raises(NotImplementedError, match="boolean mask"):
        RULES["aten::index.Tensor"].fn(np.zeros((4, 2)), [mask.numpy()])


def test_repeat_interleave_of_unknown_size_is_left_to_what_reads_it() -> None:
    with pytest.raises(NotImplementedError, match="output_size"):
        RULES["aten::repeat_interleave.Tensor"].fn(np.ones(3, np.int64))


BAD = [
    ("aten::index.Tensor", ([np.array([0, 4])],), "index 4 is out of bounds for dimension 0 with size 4"),
    ("aten::index.Tensor", ([None, np.array([-6])],), "index -6 is out of bounds for dimension 1 with size 5"),
    ("aten::gather", (1, np.array([[[[5]]]])), "index 5 is out of bounds for dimension 1 with size 5"),
    ("aten::gather", (1, np.array([[[[-1]]]])), "index -1 is out of bounds for dimension 1 with size 5"),
    ("aten::index_select", (0, np.array([-1])), "index -1 is out of bounds for dimension 0 with size 4"),
    ("aten::take", (np.array([360]),), "index 360 is out of bounds for dimension 0 with size 360"),
    ("aten::index_add", (0, np.array([-1]), np.ones((1, 5, 6, 3), "f")), "index -1 is out of bounds"),
    ("aten::index_copy", (0, np.array([-1]), np.ones((1, 5, 6, 3), "f")), "index -1 is out of bounds"),
    ("aten::scatter.value", (0, np.array([[[[4]]]]), np.float32(1)), "index 4 is out of bounds"),
    ("aten::index_put", ([np.array([4])], np.float32(1)), "index 4 is out of bounds"),
]


@pytest.mark.parametrize(("name", "args", "message"), BAD, ids=[f"{name[6:]}-{text}" for name, _, text in BAD])
def test_bad_indices_are_reported(name: str, args: tuple, message: str) -> None:
    with jax.enable_x64(True), tracing(Context(check_bounds=True, checks=[])) as context:
        RULES[name].fn(X.numpy(), *args)
        assert context.checks
        report, text = context.checks[0]
        bad, value = np.asarray(report)
    assert bad == 1 and message in text.replace("{value}", str(value))


def test_good_indices_are_not() -> None:
    with jax.enable_x64(True), tracing(Context(check_bounds=True, checks=[])) as context:
        RULES["aten::index.Tensor"].fn(X.numpy(), [np.array([-4, 3])])
        assert context.checks and not np.asarray(context.checks[0][0])[0]


def test_every_element_type_is_gathered() -> None:
    for dtype in (torch.uint8, torch.int16, torch.float16, torch.complex64):
        agrees(aten.index_select.default, X.to(dtype), 1, torch.tensor([4, 0]))
    assert evaluate(aten.index.Tensor, X, [None, None]).equal(X)


def test_every_rule_is_exercised() -> None:
    assert not unexercised(indexing, [case[0] for case in CASES])
