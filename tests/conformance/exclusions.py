"""What the conformance suite leaves out. Each row has its reason; there is no other list of them."""

from __future__ import annotations

import re
from typing import NamedTuple

import torch


class Exclusion(NamedTuple):
    """Tests and ops (regular expressions that match whole names), dtypes (all of them when empty), and why."""

    tests: str
    ops: str
    reason: str
    dtypes: tuple[torch.dtype, ...] = ()


_VALUES = "test_(forward|inplace|out|gradients|second_gradients|float32_error)"

_WITH_TIES = (torch.bfloat16, torch.float16, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

EXCLUSIONS = (
    Exclusion(
        _VALUES,
        r"bernoulli|cauchy|exponential|geometric|log_normal|multinomial|normal(\..*)?|rand_like|randn_like|randint(_like)?"
        r"|randn|uniform|nn\.functional\.(alpha_|feature_alpha_)?dropout\d?d?|nn\.functional\.(feature_alpha_dropout\..*"
        r"|rrelu|fractional_max_pool[23]d|scaled_dot_product_attention|multi_head_attention_forward)|pca_lowrank|svd_lowrank"
        r"|torch\.ops\.aten\._flash_attention_forward|torch\.ops\.aten\._efficient_attention_forward",
        "draws random numbers, from another generator than the CPU's; tests/lowering/test_random.py has the laws",
    ),
    Exclusion(
        _VALUES,
        r"empty(_like|_permuted|_strided)?|new_empty(_strided)?|linalg\.(ldl_factor.*)",
        "no values are promised (new memory; a factorization that is not unique)",
    ),
    Exclusion(
        _VALUES,
        r"svd|linalg\.(svd|eig|eigh|qr)|qr|geqrf|ormqr",
        "vectors are unique up to a factor: tests/lowering/test_orthogonal.py compares the products",
    ),
    Exclusion(
        "test_(forward|out)",
        r"sort|argsort|topk|kthvalue|mode",
        "the CPU's order of equal elements is none that it promises (ours is stable): tests/lowering/test_sorting.py "
        "compares what the indices pick",
        _WITH_TIES,
    ),
    Exclusion(".*", ".*", "complex numbers of two half precisions: XLA has none", (torch.complex32,)),
    Exclusion(
        "test_errors",
        "complex|masked_select|aminmax",
        "accepts an out= tensor of another dtype (cast), or one that is an input of masked_select (copied first)",
    ),
    Exclusion("test_errors", "uniform", "from and to are run-time numbers: to look at them, each call would wait"),
    Exclusion(".*", r"jiterator.*", "compiles CUDA code"),
    Exclusion(".*", r".*sparse.*", "sparse storage: the device says so (tests/device/test_layouts.py)"),
    Exclusion(_VALUES, r"to_sparse|.*jagged.*|narrow_copy", "the CPU's result has another layout"),
)


def reason(test: str, op: str, dtype: torch.dtype | None) -> str | None:
    """Why a test is left out, or None."""
    for row in EXCLUSIONS:
        if re.fullmatch(row.tests, test) and re.fullmatch(row.ops, op) and (not row.dtypes or dtype in row.dtypes):
            return row.reason
    return None
