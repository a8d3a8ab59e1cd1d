from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint


def _draw(**options):
    return torch.rand(16, device="tpu", **options).cpu()


def test_seeding_repeats():
    torch.manual_seed(0)
    first = _draw()
    second = _draw()
    torch.manual_seed(0)
    assert torch.equal(_draw(), first)
    assert not torch.equal(first, second)
    assert 0.1 < first.mean() < 0.9
    torch.tpu.manual_seed(1)
    other = _draw()
    torch.tpu.manual_seed_all(1)
    assert torch.equal(_draw(), other)
    assert torch.tpu.initial_seed() == 1


def test_fresh_seeds_differ():
    torch.tpu.seed()
    first = torch.tpu.initial_seed()
    torch.tpu.seed_all()
    assert torch.tpu.initial_seed() != first
    torch.seed()


def test_state_round_trip():
    state = torch.tpu.get_rng_state()
    assert state.dtype == torch.uint8 and state.device.type == "cpu"
    first = _draw()
    torch.tpu.set_rng_state(state)
    assert torch.equal(_draw(), first)
    states = torch.tpu.get_rng_state_all()
    second = _draw()
    torch.tpu.set_rng_state_all(states)
    assert torch.equal(_draw(), second)
    with pytest.raises(TypeError, match="tpu generator"):
        torch.tpu.set_rng_state(torch.zeros(3, dtype=torch.uint8))


def test_own_generator():
    generator = torch.Generator("tpu").manual_seed(7)
    assert generator.device.type == "tpu" and generator.initial_seed() == 7
    state = generator.get_state()
    first = _draw(generator=generator)
    assert not torch.equal(_draw(generator=generator), first)
    generator.set_state(state)
    assert torch.equal(_draw(generator=generator), first)
    copy = generator.clone_state()
    assert torch.equal(_draw(generator=copy), _draw(generator=generator))
    with pytest.raises(RuntimeError, match="Expected a 'tpu' device type for generator"):
        _draw(generator=torch.Generator())


def test_own_generator_leaves_the_default_alone():
    torch.manual_seed(5)
    expected = _draw()
    torch.manual_seed(5)
    _draw(generator=torch.Generator("tpu"))
    assert torch.equal(_draw(), expected)


def test_default_generators():
    assert torch.tpu.default_generators[0].device == torch.device("tpu:0")
    torch.tpu.default_generators[0].manual_seed(11)
    assert torch.tpu.initial_seed() == 11


def test_fork_rng():
    torch.manual_seed(3)
    with torch.random.fork_rng(device_type="tpu"):
        inside = _draw()
    assert torch.equal(_draw(), inside)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_replays_dropout(use_reentrant):
    x = torch.ones(64, device="tpu", requires_grad=True)
    kept = []

    def drop(x):
        y = torch.nn.functional.dropout(x, 0.5)
        kept.append(y.detach().cpu())
        return y * y

    torch.manual_seed(2)
    checkpoint(drop, x, use_reentrant=use_reentrant).sum().backward()
    assert len(kept) == 2 and torch.equal(*kept)
    torch.testing.assert_close(x.grad.cpu(), 2 * kept[0] * 2 * (kept[0] != 0))
    assert 0 < kept[0].count_nonzero() < 64
