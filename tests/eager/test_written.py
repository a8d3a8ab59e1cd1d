"""What a recipe looks like on disk."""

from __future__ import annotations

import pickle

import pytest
import torch

from torus.backend.eager.build import Plan
from torus.backend.eager.request import Result
from torus.backend.eager.written import decode, encode

RESULT = Result(torch.bfloat16, (2, 3), (3, 1), torch.float32, (6,), -1)
PLAN = Plan([0, 2], True, [RESULT, None], [-1, 3, (7,)], ["index {value}"], 5, [1], {"xla_cpu_fast": False})
AVALS = [((2, 3), "float32"), ((), "int64")]


@pytest.mark.parametrize("plan", [PLAN, Plan([], False)])
def test_what_is_written_is_read(plan: Plan) -> None:
    found = decode(encode(plan, b"\x00text\xff", AVALS))
    assert found == (plan, b"\x00text\xff", AVALS)
    assert [type(count) for count in found[0].counts] == [type(count) for count in plan.counts]


@pytest.mark.parametrize("data", [b"", b"x", b"\x02\x00\x00\x00{}", pickle.dumps((PLAN, b"", AVALS))])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode(data)


def test_only_dtypes_are_looked_up() -> None:
    data = encode(PLAN, b"", AVALS).replace(b"bfloat16", b"set_flush")
    with pytest.raises(ValueError):
        decode(data)
