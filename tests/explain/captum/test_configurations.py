"""Each pair gives on the device what it gives on the CPU, from the same random numbers, and so does a second call."""

from __future__ import annotations

import warnings

import pytest
import torch

from tests.explain.captum.suite import SAMPLE, Pair, all_pairs, chosen
from torus.explain.matrix.compare import flat, judge
from torus.explain.matrix.draws import one_stream
from torus.explain.matrix.measure import in_mode

LIMIT = 1e-6


def results(pair: Pair, device: str, dtype: torch.dtype = torch.float32, compiled: bool = False):
    with warnings.catch_warnings(), one_stream(0):
        warnings.simplefilter("ignore")
        return flat(pair.attribute(device, dtype, compiled))


def test_captum_has_its_configurations():
    pairs = all_pairs()
    assert (len({id(pair.entry) for pair in pairs}), len(pairs)) == (77, 288)
    assert set(SAMPLE) <= {pair.name for pair in pairs}


@pytest.mark.parametrize(("pair", "mode"), chosen(), ids=[f"{pair.name}-{mode}" for pair, mode in chosen()])
def test_a_configuration(pair, mode, device):
    expected = results(pair, "cpu")
    torch._dynamo.reset()
    with in_mode(mode):
        found = [results(pair, device, compiled=mode == "compiled") for _ in range(1 if mode == "compiled" else 2)]
    judged = judge(found, expected, lambda: results(pair, "cpu", torch.float64), LIMIT)
    assert judged.right, judged
