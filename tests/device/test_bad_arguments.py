"""Bad arguments raise PyTorch's exceptions, whatever the rule stumbled over."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import library

ONES = {"device": "tpu"}

CALLS = {
    "lowering fails": (lambda x: x.index_add(0, torch.tensor([0, 1], **ONES), x[0]), "source tensor shape"),
    "dilation": (lambda x: F.conv1d(x[None], x[None], dilation=-1), "dilation should be greater than zero"),
    "out of another dtype": (
        lambda x: torch.gather(x, 0, torch.zeros(1, 1, dtype=torch.long, **ONES), out=x.double()),
        "Expected out tensor to have dtype float",
    ),
    "out is an input": (
        lambda x: torch.gather(x, 0, torch.zeros(2, 2, dtype=torch.long, **ONES), out=x),
        "unsupported operation",
    ),
    "weights": (lambda x: torch.multinomial(-x, 1), "element < 0"),
    "dtype of weights": (lambda x: torch.multinomial(x.long(), 1), "only supports floating-point dtypes"),
    "mask": (lambda x: x.masked_scatter(x.byte(), x), "only supports boolean masks"),
}


@pytest.mark.parametrize(("call", "message"), CALLS.values(), ids=CALLS)
def test_runtime_errors(call, message):
    with pytest.raises(RuntimeError, match=message):
        call(torch.ones(2, 2, device="tpu"))


@pytest.mark.parametrize("kind", [IndexError, RuntimeError])
def test_an_index_out_of_range_is_both(kind):
    """PyTorch raises IndexError in some ops and RuntimeError in others."""
    with pytest.raises(kind, match="index 5 is out of bounds for dimension 0 with size 2"):
        torch.ones(2, device="tpu").gather(0, torch.tensor([5], device="tpu"))


def test_an_error_of_a_rule_alone_stays():
    """The CPU accepts the arguments: the rule's exception says what is wrong with it."""
    library.define("torus_bad_rule::f", "(Tensor x) -> Tensor")
    library.impl("torus_bad_rule::f", "CPU")(torch.clone)

    @torch.tpu.register_rule("torus_bad_rule::f")
    def fails(x):
        raise LookupError("the rule is wrong")

    with pytest.raises(LookupError, match="the rule is wrong") as raised:
        torch.ops.torus_bad_rule.f(torch.ones(2, device="tpu"))
    assert "torus_bad_rule::f" in raised.value.__notes__[0]
