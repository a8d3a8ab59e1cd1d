"""Matrix products against CPU PyTorch."""

from __future__ import annotations

import itertools

import jax
import pytest
import torch

from tests.lowering.agree import Case, agrees, label, run, unexercised
from tests.lowering.evaluate import evaluate
from tests.lowering.test_kernels import NAMED
from torus.backend.lowering import matmul, shape, strided
from torus.backend.lowering.apply import Context, tracing
from torus.backend.lowering.registry import OutSpec

aten = torch.ops.aten
BF16 = torch.bfloat16


def randn(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


A, B, ADDEND = randn(4, 6), randn(6, 5, seed=1), randn(4, 5, seed=2)
A3, B3, ADDEND3 = randn(3, 4, 6), randn(3, 6, 5, seed=1), randn(3, 4, 5, seed=2)
U, V = randn(6), randn(6, seed=1)
COMPLEX = torch.complex(randn(6), randn(6, seed=1))
INT8_A = torch.arange(-12, 12, dtype=torch.int8).reshape(4, 6) * 5
INT8_B = torch.arange(-15, 15, dtype=torch.int8).reshape(6, 5) * 4
NAN = torch.full((4, 5), float("nan"))
DTYPES = [torch.float32, torch.float64, BF16, torch.int8, torch.int32, torch.int64, torch.complex64]

CASES: list[Case] = (
    [
        case
        for t in DTYPES
        for case in [
            (aten.mm.default, (A * 4).to(t), (B * 4).to(t)),
            (aten.bmm.default, (A3 * 4).to(t), (B3 * 4).to(t)),
            (aten.addmm.default, (ADDEND * 4).to(t), (A * 4).to(t), (B * 4).to(t), {"beta": 2, "alpha": 3}),
        ]
    ]
    + [
        case
        for scale in [{}, {"beta": 0.5, "alpha": -2.0}, {"beta": 0, "alpha": 1.5}]
        for case in [
            (aten.addmm.default, ADDEND, A, B, scale),
            (aten.addmm.default, ADDEND[0], A, B, scale),
            (aten.addmv.default, ADDEND[:, 0].contiguous(), A, U, scale),
            (aten.addr.default, randn(4, 5), ADDEND[:, 0].contiguous(), ADDEND[0], scale),
            (aten.baddbmm.default, ADDEND3, A3, B3, scale),
            (aten.addbmm.default, ADDEND, A3, B3, scale),
        ]
    ]
    + [
        (aten.addmm.default, NAN, A, B, {"beta": 0}),
        (aten.mm.default, torch.zeros(3, 0), torch.zeros(0, 2)),
        (aten.mv.default, A, U),
        (aten.dot.default, U, V),
        (aten.dot.default, U.long(), V.long()),
        (aten.vdot.default, COMPLEX, COMPLEX * 2),
        (aten.vdot.default, U, V),
        (aten.addr.default, torch.ones(6, 6, dtype=torch.bool), U > 0, V > 0),
        (aten._addmm_activation.default, ADDEND, A, B),
        (aten._addmm_activation.default, ADDEND, A, B, {"use_gelu": True}),
        (aten._int_mm.default, INT8_A, INT8_B),
        (aten.trace.default, A),
        (aten.trace.default, INT8_A),
        (aten.linalg_cross.default, randn(4, 3), randn(4, 3, seed=1)),
        (aten.linalg_cross.default, randn(3, 4), randn(3, 1, seed=1), {"dim": 0}),
    ]
)
TO_FLOAT: list[Case] = [
    (aten.mm.dtype, A, B),
    (aten.bmm.dtype, A3, B3),
    (aten.addmm.dtype, ADDEND, A, B),
]


@pytest.mark.parametrize("case", CASES, ids=label)
def test_product(case: Case) -> None:
    run(case)


@pytest.mark.parametrize("case", TO_FLOAT, ids=label)
def test_half_precision_product_in_float32(case: Case) -> None:
    op, *args = case
    half = [a.bfloat16() for a in args]
    wide = getattr(aten, op._schema.name[6:]).default(*[h.float() for h in half])
    torch.testing.assert_close(evaluate(op, *half, torch.float32), wide)


WIDE, HIGH, ONE = randn(3, 2, 6), randn(3, 6, 2), randn(5, 6, seed=1)


@pytest.mark.parametrize(
    "multiply",
    [
        lambda rows, _, one: torch.bmm(rows, one.T.expand(3, 6, 5)),
        lambda rows, _, one: torch.bmm(rows, one.expand(3, 5, 6).transpose(1, 2)),
        lambda _, columns, one: torch.bmm(one.expand(3, 5, 6), columns),
        lambda rows, _, one: torch.nn.functional.linear(rows[:, -1:], one),
        lambda rows, _, one: torch.baddbmm(one[:2, :5], rows, one.T.expand(3, 6, 5)),
    ],
)
def test_a_matrix_that_a_batch_repeats(multiply, device) -> None:
    expected = multiply(WIDE, HIGH, ONE)
    given = [x.to(device) for x in (WIDE, HIGH, ONE)]
    for call in (multiply, torch.compile(multiply, backend="tpu")):
        torch.testing.assert_close(call(*given).cpu(), expected)


@pytest.mark.parametrize(
    "multiply",
    [
        lambda rows, _, one: matmul.bmm(rows, strided.read(one.reshape(-1), strided.View((3, 6, 5), (0, 1, 6)), None)),
        lambda _, columns, one: matmul.bmm(expanded(one, 5, 6), columns),
        lambda rows, _, one: matmul.bmm(rows, shape.permute_copy(expanded(one, 5, 6), [0, 2, 1])),
        lambda rows, _, one: matmul.bmm(rows, shape.transpose_copy(expanded(one, 5, 6), 1, -1)),
    ],
)
def test_a_matrix_that_a_batch_repeats_is_read_once(multiply) -> None:
    """Whether it comes as a view of a storage or from ops of a graph: XLA:CPU would make all its copies."""

    def traced(*arrays):
        with tracing(Context()):
            return multiply(*arrays)

    text = str(jax.make_jaxpr(traced)(*(x.numpy() for x in (WIDE, HIGH, ONE))))
    assert "dot_general" in text and "([0], [0])" not in text


def expanded(array, *sizes: int):
    """Three times the matrix, as a graph has it."""
    out = OutSpec((3, *sizes), "float32")
    return shape.reshaped(shape.expand_copy(array, out.shape, out=out), out=out)


def test_half_precision_accumulates_in_float32() -> None:
    x = torch.ones(1, 4096, dtype=BF16)
    assert evaluate(aten.mm.default, x, x.t().contiguous()).item() == 4096


def test_scaled_mm() -> None:
    a, b = randn(16, 32).to(torch.float8_e4m3fn), randn(16, 32, seed=1).to(torch.float8_e4m3fn).t()
    expected = (a.float() @ b.float()) * 1.5
    scales = torch.tensor(0.5), torch.tensor(3.0)
    agrees(aten._scaled_mm.default, a, b, *scales, out_dtype=torch.float32, reference=expected)


@pytest.mark.parametrize(("out_dtype", "rtol"), [(None, 0.125), (torch.float32, 1e-6), (torch.bfloat16, 2**-8)])
def test_scaled_mm_of_rows(out_dtype: torch.dtype | None, rtol: float, device: str) -> None:
    """The CPU takes a second factor in rows too, which PyTorch's meta kernel refuses: the rule says the dtype."""
    a, b = (torch.randn(16, 16).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones(())
    expected = torch._scaled_mm(a, b, one, one, out_dtype=out_dtype)
    found = torch._scaled_mm(*(t.to(device) for t in (a, b, one, one)), out_dtype=out_dtype)
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found.cpu().float(), expected.float(), rtol=rtol, atol=1e-5 if out_dtype else 2**-9)


@pytest.mark.parametrize(("rows", "recipe"), [(1, 0), (16, 1)], ids=["one scale", "a scale for each row"])
def test_scaled_mm_with_lists_of_scales(rows: int, recipe: int) -> None:
    a, b = randn(16, 32).to(torch.float8_e4m3fn), randn(16, 32, seed=1).to(torch.float8_e4m3fn).t()
    scales = torch.linspace(0.5, 2, rows).reshape(rows, 1), torch.linspace(1, 3, rows).reshape(1, rows)
    expected = (a.float() @ b.float()) * scales[0] * scales[1]
    args = [[scales[0]], [recipe], [0], [scales[1]], [recipe], [0], None, torch.float32]
    agrees(aten._scaled_mm_v2.default, a, b, *args, reference=expected)


def test_scaled_mm_by_blocks_says_that_it_is_missing() -> None:
    with pytest.raises(NotImplementedError, match="each block"):
        matmul.scaled_mm_v2(A, B, [None], [3], [0], [None], [3], [0])


GROUPS = torch.tensor([2, 2, 7], dtype=torch.int32)
ROWS, MATRICES = randn(8, 16), randn(3, 16, 8, seed=1)


def grouped(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """What a grouped product means, group by group; positions after the last group are zero."""
    bounds = [0, *GROUPS.tolist()]
    spans = [slice(i, j) for i, j in itertools.pairwise(bounds)]
    if a.dim() == 2 and b.dim() == 2:
        return torch.stack([a[:, s] @ b[s] for s in spans])
    out = torch.zeros(a.shape[-2], b.shape[-1])
    for g, s in enumerate(spans):
        if a.dim() == 2:
            out[s] = a[s] @ b[g]
        else:
            out[:, s] = a[g] @ b[:, s]
    return out


@pytest.mark.parametrize(
    ("a", "b"), [(ROWS, MATRICES), (MATRICES, ROWS), (ROWS.t().contiguous(), ROWS)], ids=["23", "32", "22"]
)
def test_grouped_mm(a: torch.Tensor, b: torch.Tensor) -> None:
    a, b = a.bfloat16(), b.bfloat16()
    agrees(aten._grouped_mm.default, a, b, GROUPS, reference=grouped(a.float(), b.float()).bfloat16())


def test_grouped_mm_of_batches() -> None:
    a, b = randn(3, 8, 16).bfloat16(), MATRICES.bfloat16()
    agrees(aten._grouped_mm.default, a, b, reference=a @ b)


@pytest.mark.parametrize("dtype", [torch.float64, BF16])
def test_trilinear_product(dtype: torch.dtype) -> None:
    x, weight, y = randn(4, 3).to(dtype), randn(2, 3, 5, seed=1).to(dtype), randn(4, 5, seed=2).to(dtype)
    args = ([1, 3], [0], [1, 2], [2, 3])
    expected = torch.einsum("ni,kij,nj->nk", *(t.double() for t in (x, weight, y))).to(dtype)
    agrees(aten._trilinear.default, x, weight, y, *args, reference=expected)


def test_every_rule_has_a_case() -> None:
    others = [aten._trilinear.default, aten._scaled_mm.default, aten._scaled_mm_v2.default, aten._grouped_mm.default]
    assert not unexercised(matmul, [*NAMED, *others, *(case[0] for case in [*CASES, *TO_FLOAT])])
