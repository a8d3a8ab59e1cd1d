"""The CTC loss and its gradient against CPU PyTorch."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.agree import agrees
from tests.lowering.evaluate import evaluate

pytestmark = pytest.mark.slow

aten = torch.ops.aten

LOG_PROBS = torch.randn(8, 3, 5, generator=torch.Generator().manual_seed(0)).double().log_softmax(-1)
PADDED = torch.tensor([[1, 2, 2], [3, 3, 0], [4, 1, 1]])
JOINED = torch.tensor([1, 2, 2, 3, 3, 1, 1])
CASES = {
    "padded": (PADDED, [8, 6, 3], [3, 2, 0], 0),
    "joined": (JOINED, [8, 6, 5], [3, 2, 2], 0),
    "other blank": (JOINED, [8, 6, 5], [3, 2, 2], 4),
    "impossible": (JOINED, [8, 6, 2], [3, 2, 2], 0),
    "no time": (JOINED, [8, 6, 0], [3, 2, 2], 0),
    "no labels": (PADDED[:, :0], [8, 6, 3], [0, 0, 0], 0),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("zero_infinity", [False, True])
def test_loss_and_gradient(case: str, zero_infinity: bool) -> None:
    targets, times, lengths, blank = CASES[case]
    loss, log_alpha = aten._ctc_loss(LOG_PROBS, targets, times, lengths, blank, zero_infinity)
    actual = evaluate(aten._ctc_loss.default, LOG_PROBS, targets, times, lengths, blank, zero_infinity)
    torch.testing.assert_close(actual[0], loss)
    tensors = [torch.tensor(times), torch.tensor(lengths)]
    torch.testing.assert_close(
        evaluate(aten._ctc_loss.Tensor, LOG_PROBS, targets, *tensors, blank, zero_infinity)[0], loss
    )
    grad = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    args = (grad, LOG_PROBS, targets, times, lengths, loss, actual[1], blank, zero_infinity)
    expected = aten._ctc_loss_backward(*args[:6], log_alpha, *args[7:])
    agrees(aten._ctc_loss_backward.default, *args, reference=expected)


def test_states_of_tensor_lengths_have_room_for_a_whole_row() -> None:
    """Row D12 of docs/numerics.md: what no target reaches is -inf, the rest is the CPU's."""
    times, lengths = torch.tensor([8, 6, 3]), torch.tensor([2, 1, 0])
    loss, expected = aten._ctc_loss(LOG_PROBS, PADDED, times, lengths)
    found_loss, found = evaluate(aten._ctc_loss.Tensor, LOG_PROBS, PADDED, times, lengths)
    torch.testing.assert_close(found_loss, loss)
    states = expected.shape[-1]
    assert states == 2 * 2 + 1 and found.shape[-1] == 2 * PADDED.shape[1] + 1
    for row, (time, length) in enumerate(zip(times, lengths)):
        reached = (row, slice(int(time)), slice(2 * int(length) + 1))
        torch.testing.assert_close(found[reached], expected[reached])
    assert torch.all(found[..., states:] == -torch.inf)
