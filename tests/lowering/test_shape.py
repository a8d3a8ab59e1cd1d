"""Joining, repeating, reordering and copying views, against CPU PyTorch."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.agree import Case, label, run, unexercised
from tests.lowering.evaluate import evaluate
from torus.backend.lowering import shape

aten = torch.ops.aten
X = torch.randn(4, 5, 6, 3, generator=torch.Generator().manual_seed(0))
Y = X[:, :, 0]
ONE = torch.tensor(2.0)
COMPLEX = torch.complex(Y[0], Y[1])
IMAGE = X.reshape(5, 8, 3, 3)

CASES: list[Case] = [
    (aten.cat.default, [torch.tensor([1, 2]), torch.tensor([1.5]), torch.empty(0)]),
    (aten.cat.default, [X, X[:, :2], X[:, :0]], -3),
    (aten.cat.default, [Y.bfloat16(), Y.half()], 1),
    (aten.cat.default, [torch.empty(0), torch.empty(0)]),
    (aten.stack.default, [Y, Y.double()], -1),
    (aten._stack.default, [ONE, ONE]),
    (aten._chunk_cat.default, [Y, Y[:, :3]], 1, 2),
    (aten.block_diag.default, [torch.tensor([[1, 2], [3, 4]]), torch.tensor(5.0), torch.tensor([1, 2, 3])]),
    (aten.flip.default, X, [0, -1]),
    (aten.flip.default, ONE, []),
    (aten.roll.default, X, [3, -2], [1, 0]),
    (aten.roll.default, X, [7]),
    (aten.roll.default, X[:0], [1], [0]),
    *[(aten.rot90.default, X, k, [1, 2]) for k in range(-1, 5)],
    (aten.repeat.default, Y, [2, 1, 3, 2]),
    (aten.repeat.default, ONE, [3]),
    (aten.repeat.default, Y, [0, 1, 1]),
    (aten.channel_shuffle.default, IMAGE, 4),
    (aten.pixel_shuffle.default, IMAGE, 2),
    (aten.pixel_unshuffle.default, X.reshape(5, 1, 12, 6)[0], 3),
    (aten.unfold_copy.default, X, 2, 3, 2),
    (aten.unfold_copy.default, ONE, 0, 1, 1),
    (aten.unfold_backward.default, X.unfold(2, 3, 2).contiguous(), [4, 5, 6, 3], 2, 3, 2),
    (aten.unfold_backward.default, X.unfold(2, 3, 1).contiguous(), [4, 5, 6, 3], 2, 3, 1),
    (aten.narrow_copy.default, X, 1, 2, 2),
    (aten.narrow_copy.default, X, 1, -3, 2),
    (aten.select_copy.int, X, 1, -2),
    (aten.slice_copy.Tensor, X, 1, -3, 100, 2),
    (aten.slice_copy.Tensor, X, 1, 4, 2),
    (aten.diagonal_copy.default, X, 1, -1, 1),
    (aten.diagonal_copy.default, X, -2, 1, 2),
    (aten.expand_copy.default, torch.tensor([[1.0], [2.0]]), [3, -1, 4]),
    (aten.view_copy.default, X, [20, -1]),
    (aten._reshape_copy.default, X, [20, -1]),
    (aten.squeeze_copy.default, Y[:, :1]),
    (aten.squeeze_copy.dim, Y[:, :1], 1),
    (aten.squeeze_copy.dims, Y[:1, :1], [0, 1]),
    (aten.unsqueeze_copy.default, Y, -1),
    (aten.alias_copy.default, Y),
    (aten.detach_copy.default, Y),
    (aten.lift_fresh_copy.default, Y),
    (aten.permute_copy.default, Y, [2, 0, -2]),
    (aten.transpose_copy.int, Y, 0, -1),
    (aten.transpose_copy.int, ONE, 0, -1),
    (aten.t_copy.default, Y[0]),
    (aten.split_with_sizes_copy.default, X, [1, 3, 1], 1),
    (aten.unsafe_split_with_sizes.default, X, [1, 4, 0], 1),
    (aten.split_copy.Tensor, X, 2, 1),
    (aten.unsafe_split.Tensor, X, 2, 1),
    (aten.unbind_copy.int, X, -1),
    (aten.view_as_real_copy.default, COMPLEX),
    (aten.view_as_complex_copy.default, torch.view_as_real(COMPLEX).contiguous()),
    (aten._neg_view_copy.default, Y),
    *[(aten.view_copy.dtype, Y[..., :2].contiguous(), d) for d in (torch.int32, torch.float64, torch.uint8)],
]


@pytest.mark.parametrize("case", CASES, ids=label)
def test_shape(case: Case) -> None:
    run(case)


def test_conjugate_is_a_value() -> None:
    assert evaluate(aten._conj_copy.default, COMPLEX).equal(COMPLEX.conj().resolve_conj())


def test_native_channel_shuffle_shares_the_rule() -> None:
    assert evaluate(aten.native_channel_shuffle.default, IMAGE, 2).equal(aten.channel_shuffle(IMAGE, 2))


def test_every_rule_is_exercised() -> None:
    ops = [*[case[0] for case in CASES], aten._conj_copy.default, aten.native_channel_shuffle.default]
    assert not unexercised(shape, ops)
