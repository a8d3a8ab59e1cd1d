from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence

from tests.models.compare import assert_all_near, assert_near, check_training

KINDS: list[Any] = [nn.LSTM, nn.GRU, nn.RNN]
LENGTHS = [7, 2, 5]


class Tagger(nn.Module):
    """Embedding, recurrent layers, a linear layer on every position."""

    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 8, padding_idx=0)
        self.recurrent = kind(8, 12, batch_first=True, **options)
        self.head = nn.Linear(24 if options.get("bidirectional") else 12, 4)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.recurrent(self.embedding(ids))[0])


class PackedTagger(Tagger):
    """The same on packed sequences."""

    def forward(self, ids: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embedding(ids), torch.tensor(LENGTHS), True, enforce_sorted=False)
        out, _ = pad_packed_sequence(self.recurrent(packed)[0], batch_first=True)
        return self.head(out)


def batch() -> tuple[Tensor, Tensor]:
    """Padded ids and tags; padding is tagged -100, which the loss ignores."""
    ids, tags = torch.randint(1, 50, (3, 7)), torch.randint(4, (3, 7))
    for row, length in enumerate(LENGTHS):
        ids[row, length:], tags[row, length:] = 0, -100
    return ids, tags


def tag(model: nn.Module, ids: Tensor, tags: Tensor) -> Tensor:
    return F.cross_entropy(model(ids).transpose(1, 2), tags)


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}], ids=["plain", "deep"])
@pytest.mark.parametrize("kind", KINDS)
def test_training(kind: Any, options: dict[str, Any]) -> None:
    check_training(Tagger(kind, **options), batch(), tag)


@pytest.mark.parametrize("kind", KINDS)
def test_packed_training(kind: Any) -> None:
    check_training(PackedTagger(kind, bidirectional=True), batch(), tag)


def test_projection() -> None:
    check_training(nn.LSTM(8, 12, proj_size=5), (torch.randn(6, 3, 8),), lambda m, x: m(x)[0].square().mean())


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells(kind: Any) -> None:
    def loss(cell: nn.Module, x: Tensor) -> Tensor:
        state: Any = None
        for step in x:
            state = cell(step, state)
        return (state[0] if isinstance(state, tuple) else state).square().mean()

    check_training(kind(8, 12), (torch.randn(4, 3, 8),), loss)


@pytest.mark.parametrize("kind", KINDS)
def test_initial_state_gradients(kind: Any) -> None:
    model, x, states = kind(8, 12), torch.randn(5, 3, 8), [torch.randn(1, 3, 12) for _ in range(2)]

    def run(device: str, dtype: torch.dtype) -> dict[str, Tensor]:
        own = copy.deepcopy(model).to(device, dtype)
        leaves = [s.to(device, dtype).requires_grad_() for s in states[: 2 if kind is nn.LSTM else 1]]
        out, last = own(x.to(device, dtype), tuple(leaves) if kind is nn.LSTM else leaves[0])
        last = last if isinstance(last, tuple) else (last,)
        (out.square().mean() + sum(s.sum() for s in last)).backward()
        results = [out, *last, *[s.grad for s in leaves]]
        return {str(i): t.detach().cpu() for i, t in enumerate(results)}

    assert_all_near(run("tpu", torch.float32), run("cpu", torch.float64))


def test_dropout_between_layers_is_seeded() -> None:
    model = nn.LSTM(8, 12, num_layers=2, dropout=0.5).to("tpu")
    x = torch.randn(5, 3, 8, device="tpu")

    def run(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return model(x)[0].cpu()

    assert torch.equal(run(3), run(3))
    assert not torch.equal(run(3), run(4))


def test_pack_and_pad_round_trip() -> None:
    sequences = [torch.randn(length, 4) for length in LENGTHS]
    on_device = [s.to("tpu") for s in sequences]
    packed, expected = pack_sequence(on_device, enforce_sorted=False), pack_sequence(sequences, enforce_sorted=False)
    assert torch.equal(packed.data.cpu(), expected.data)
    assert torch.equal(packed.batch_sizes, expected.batch_sizes)
    padded, lengths = pad_packed_sequence(packed)
    assert lengths.tolist() == LENGTHS
    assert torch.equal(padded.cpu(), pad_sequence(sequences))
    assert torch.equal(pad_sequence(on_device).cpu(), pad_sequence(sequences))


def test_long_sequence_compiles_once() -> None:
    """The loop over time steps runs one program again and again."""
    model = nn.LSTM(8, 12).to("tpu")
    with torch.no_grad():
        model(torch.randn(6, 3, 8, device="tpu"))
        torch.tpu.reset_counters()
        x = torch.randn(40, 3, 8)
        actual = model(x.to("tpu"))[0]
    assert torch.tpu.counters()["compiles"] <= 8
    assert_near(actual, model.cpu().double()(x.double())[0])
