"""Random programs agree with the CPU; the fuzzer sees what it is there to see. ``python -m tests.fuzz`` runs more."""

from __future__ import annotations

import pytest
import torch

from tests.fuzz.generate import DTYPES, EXTRA_DTYPES, fuzz
from tests.fuzz.modes import NAMES
from tests.fuzz.program import Program, minimize, run

CHUNK = 50
FAST_CHUNKS = 4
PROGRAMS = {"strict": 1000, "recorded": 500, "mixed": 200, "fused": 100, "background": 100}
"""How many in each mode. Fusing in the foreground compiles a program or more for each of them."""

chunks = [
    pytest.param(mode, first, marks=[] if mode == "strict" and first < FAST_CHUNKS * CHUNK else pytest.mark.slow)
    for mode, programs in PROGRAMS.items()
    for first in range(0, programs, CHUNK)
]


def check(seed: int, dtypes: tuple[torch.dtype, ...], mode: str = "strict") -> None:
    program, mismatch = fuzz(seed, dtypes, mode)
    if mismatch is not None:
        source = Program(seed, minimize(program.lines, mode, seed)).source()
        pytest.fail(f"seed {seed}, mode {mode}: {mismatch.aspect}\n{mismatch.detail}\n\n{source}", pytrace=False)


@pytest.mark.parametrize(("mode", "first"), chunks)
def test_programs_agree_with_the_cpu(mode: str, first: int, device: str) -> None:
    for seed in range(first, first + CHUNK):
        check(seed, DTYPES, mode)


@pytest.mark.slow
def test_complex_programs_agree_with_the_cpu(device: str) -> None:
    for seed in range(CHUNK):
        check(seed, EXTRA_DTYPES)


@pytest.mark.parametrize("mode", NAMES)
def test_a_seed_is_a_program(mode: str, device: str) -> None:
    assert fuzz(7)[0].lines == fuzz(7, mode=mode)[0].lines


PLANTED = {
    "values": "v1[1] += device != 'cpu'",
    "size": "v1 = v1 if device == 'cpu' else v1[1:]",
    "stride": "v1 = v1.expand(2, 4) if device == 'cpu' else v1.repeat(2, 1)",
    "dtype": "v1 = v1.to(torch.float32 if device == 'cpu' else torch.float64)",
    "storage_offset": "v1 = v1[:2] if device == 'cpu' else v1[2:]",
    "_version": "v1.add_(0) if device == 'cpu' else v1.data.add_(0)",
    "_is_view": "v1 = v1[...] if device == 'cpu' else v1.detach().requires_grad_(False).clone()",
    "requires_grad": "v1.requires_grad_(device == 'cpu')",
    "grad": "v1.requires_grad_().sum().backward() if device == 'cpu' else v1.requires_grad_()",
    "exception": "v1 = v1 + (1 if device == 'cpu' else 'text')",
    "result": "result = v1.tolist() if device == 'cpu' else v1.add(1).tolist()",
    "sharing": "v2 = v1.detach() if device == 'cpu' else v1.clone().detach_()",
    "identity": "v2 = v1 if device == 'cpu' else v1.data",
}


@pytest.mark.parametrize("mode", ["strict", "recorded"])
@pytest.mark.parametrize("aspect", PLANTED)
def test_a_planted_difference_is_found(aspect: str, mode: str, device: str) -> None:
    lines = ["v1 = torch.arange(4.0).to(device)", PLANTED[aspect]]
    found = run(lines, mode)
    assert found is not None
    assert (found.line, found.aspect) == (1, aspect)


def test_minimize_keeps_what_matters(device: str) -> None:
    lines = [
        "v1 = torch.ones(3).to(device)",
        "v2 = torch.zeros(2).to(device)",
        "v3 = v1[1:]",
        "v2.add_(1)",
        "v3.fill_(2 if device == 'cpu' else 3)",
        "v4 = v2 + 1",
    ]
    assert minimize(lines) == [lines[0], lines[2], lines[4]]
