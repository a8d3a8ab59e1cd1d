"""Elementwise math, arithmetic, comparisons and special functions against CPU PyTorch."""

from __future__ import annotations

import math
from types import ModuleType

import pytest
import torch
import torch._prims

from tests.lowering.agree import Case, label, run, unexercised
from tests.lowering.evaluate import evaluate
from torus import _C
from torus.backend.lowering import binary, comparison, elementwise, special

pytestmark = pytest.mark.slow

aten, prims = torch.ops.aten, torch.ops.prims
NAN, INF = math.nan, math.inf


def randn(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(0)).to(dtype)


X = randn(3, 4)
Y = randn(5, 3, 4)[3] * 2
ROW = randn(4)
POSITIVE = X.abs() + 0.1
UNIT = X.sigmoid()
SIGNED_UNIT = X.tanh()
SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, -0.5, 1.5, 1e30, INF, -INF, NAN])
EVERY = torch.cat([t.flatten() for t in (X, POSITIVE, SIGNED_UNIT, SPECIAL)])
OTHER = torch.tensor([-0.0, 0.0, -1.0, INF, 0.1, -0.1, NAN, 2.0, 0.0, 1e30, INF, 1.0, NAN])
INTS = torch.tensor([[3, -1, 3], [0, 7, -8]])
DIVISORS = torch.tensor([[2, 2, -2], [5, -3, 3]])
SMALL = torch.tensor([5, -7, 100, -128, 127, 0], dtype=torch.int8)
BYTES = torch.tensor([5, 250, 0, 128], dtype=torch.uint8)
BOOLS = torch.tensor([[True, False, True], [False, False, True]])
COMPLEX = torch.complex(randn(3, 4), Y)
SCALAR = torch.tensor(2.5)
NEAR_POLES = torch.tensor([1e-3, -1e-3, -0.999, -1.001, -2.5, -7.99, -8.5, -30.25, -30.01, 20.0], dtype=torch.float64)
ZETA_CORNERS = (
    torch.tensor([0.0, 1.0, 0.5, 2.0, 2.0, 2.0, 3.0, 2.0, 2.0, INF, 2.5]),
    torch.tensor([1.0, 1.0, 1.0, 0.0, -1.0, -2.0, -2.0, INF, NAN, 2.0, -1.5]),
)


def ops(names: str, *suffixes: str) -> list[torch._ops.OpOverload]:
    return [getattr(getattr(aten, n), s) for n in names.split() for s in (suffixes or ("default",))]


SMOOTH = ops("atan asinh cos deg2rad erf erfc exp exp2 expm1 rad2deg sigmoid sin sinh cosh tan tanh sinc reciprocal")
ON_POSITIVES = ops("log log2 log10 sqrt rsqrt lgamma digamma special_entr i0 special_i0e special_i1 special_i1e log1p")
ON_UNITS = ops("acos asin atanh erfinv")
ROUNDING = ops("ceil floor round trunc frac")
SIGNS = ops("abs neg sign sgn signbit")
TESTS = ops("isnan isinf isposinf isneginf logical_not")

UNARY: list[Case] = (
    [(op, EVERY) for op in SMOOTH + ON_POSITIVES + ON_UNITS]
    + [(op, x) for op in ops("exp sigmoid tanh erf") for x in (X.bfloat16(), X.double(), SCALAR, INTS, BOOLS)]
    + [(op, x) for op in ops("sqrt log reciprocal") for x in (POSITIVE.bfloat16(), INTS.clamp(1))]
    + [(op, x) for op in ops("exp sigmoid sqrt log tanh log2 asin rsqrt reciprocal") for x in (COMPLEX,)]
    + [(op, x) for op in ROUNDING[:4] for x in (SPECIAL, INTS)]
    + [(aten.round.default, X.half() * 3), (aten.isnan.default, SPECIAL.half()), (aten.logical_not.default, BOOLS)]
    + [(aten.frac.default, SPECIAL[:-4]), (aten.acosh.default, POSITIVE + 1)]
    + [(op, x) for op in SIGNS for x in (SPECIAL, INTS, X.bfloat16())]
    + [
        (op, x)
        for op in TESTS
        for x in (SPECIAL, INTS, COMPLEX)
        if op in ops("isnan isinf logical_not") or x is not COMPLEX
    ]
    + [(op, COMPLEX) for op in ops("abs sgn neg angle _conj_physical conj_physical_")]
    + [(aten.abs.default, SMALL), (aten.neg.default, SMALL), (aten.sign.default, BYTES), (aten.abs.default, BYTES)]
    + [(aten.angle.default, x) for x in (SPECIAL, INTS)]
    + [(aten._conj_physical.default, X)]
    + [(aten.round.decimals, x, {"decimals": d}) for x, d in ((X, 0), (X * 100, 2), (X.double() * 100, -1))]
    + [(aten.nan_to_num.default, x) for x in (SPECIAL, SPECIAL.bfloat16(), SPECIAL.double(), INTS)]
    + [(aten.nan_to_num.default, SPECIAL, 1.0, 2.0, -3.0), (aten.nan_to_num.default, torch.complex(SPECIAL, OTHER))]
    + [(aten.bitwise_not.default, x) for x in (INTS, BYTES, BOOLS)]
    + [(aten.frexp.Tensor, x) for x in (X, SPECIAL[:-3], X.double())]
    + [
        (aten.log2.default, 2.0 ** torch.arange(-126.0, 128)),
        (aten.log2.default, 2.0 ** torch.arange(-99, 99).double()),
    ]
    + [(aten.log10.default, 10.0 ** torch.arange(0, 11)), (aten.exp2.default, torch.arange(-126.0, 128))]
)

BESSEL: list[Case] = [
    (op, x)
    for op in ops("special_erfcx special_log_ndtr special_modified_bessel_i0 special_modified_bessel_i1")
    for x in (X * 3, X.double() * 3, INTS)
] + [
    (aten.special_ndtri.default, UNIT),
    (aten.special_ndtri.default, torch.tensor([0.0, 1.0, 1e-30, 0.5, NAN, -0.5])),
    (aten.special_log_ndtr.default, torch.tensor([-30.0, -5.0, 0.0, 5.0, 30.0])),
    (aten.mvlgamma.default, POSITIVE + 3, 3),
    (aten.digamma.default, torch.tensor([0.0, -0.0, -1.0, -0.5, 20.0])),
    (aten.polygamma.default, 0, POSITIVE),
    (aten.polygamma.default, 1, POSITIVE),
    (aten.polygamma.default, 4, POSITIVE.double()),
    (aten.polygamma_.default, POSITIVE.clone(), 2),
    *[(aten.polygamma.default, n, NEAR_POLES) for n in (2, 3, 6)],
    *[(aten.polygamma.default, n, NEAR_POLES.float()) for n in (2, 5)],
    (aten.lgamma.default, torch.cat([1 + Y.flatten() / 100, 2 + Y.flatten() / 100, NEAR_POLES.float()])),
    (aten.digamma.default, torch.cat([1.46 + Y.flatten() / 100, NEAR_POLES.float()])),
    (aten.igammac.default, torch.full((3,), 1e-3), torch.tensor([0.5, 1.0, 2.0])),
    (aten.special_zeta.default, torch.tensor([[2.0], [3.0], [7.0]]), NEAR_POLES.float()),
    (aten.special_zeta.default, *ZETA_CORNERS),
    (aten.isin.Tensor_Tensor, INTS, torch.tensor([[3, 5], [-8, 3]])),
    (aten.isin.Tensor_Tensor, SPECIAL, torch.cat([SPECIAL, torch.arange(100.0)]), {"invert": True}),
    (aten.isin.Tensor_Tensor, SPECIAL, torch.zeros(0)),
    (aten.isin.Tensor_Scalar, INTS, 7),
    (aten.isin.Scalar_Tensor, 2, INTS),
    *[(getattr(prims, n).default, POSITIVE) for n in ("digamma", "erfcx", "lgamma")],
    (prims.ndtri.default, UNIT),
    *[(getattr(prims, n).default, POSITIVE, POSITIVE + 1) for n in ("igamma", "igammac", "zeta")],
    (aten.special_entr.default, SPECIAL),
    (aten.sinc.default, torch.tensor([0.0, -0.0, 0.5, 1.0, NAN])),
    (aten.igamma.default, POSITIVE, Y.abs()),
    (aten.igammac.default, POSITIVE.double(), Y.abs().double()),
    (aten.special_zeta.default, POSITIVE + 1, Y.abs() + 1),
    (aten.special_zeta.self_scalar, 2.5, POSITIVE),
    (aten.special_zeta.other_scalar, POSITIVE + 1, 2.0),
]

PAIRS = [(X, ROW), (SPECIAL, OTHER)]
MIXED = [(X.bfloat16(), Y.bfloat16()), (X.double(), Y), (X, SCALAR.double()), (X.half(), SCALAR)]
FLOAT_PAIRS = ops("atan2 hypot fmax fmin maximum minimum logaddexp logaddexp2")
BINARY: list[Case] = (
    [(op, x, y) for op in FLOAT_PAIRS for x, y in PAIRS]
    + [(op, x, y) for op in ops("remainder fmod div mul copysign xlogy", "Tensor") for x, y in PAIRS]
    + [(op, x, y) for op in ops("floor_divide special_xlog1py heaviside") for x, y in PAIRS if x.dtype == y.dtype]
    + [(op, x, y, {"alpha": 2}) for op in ops("add sub rsub", "Tensor") for x, y in [(INTS, INTS), (COMPLEX, X)]]
    + [(aten.add.Tensor, x, y, {"alpha": 0.5}) for x, y in PAIRS + MIXED]
    + [(op, x, y) for op in ops("mul div remainder", "Tensor") for x, y in MIXED]
    + [(op, INTS, DIVISORS) for op in ops("remainder fmod div mul bitwise_and bitwise_or bitwise_xor", "Tensor")]
    + [(op, INTS, DIVISORS) for op in ops("floor_divide gcd lcm maximum fmin heaviside")]
    + [(op, BOOLS, BOOLS.flip(0)) for op in ops("add mul bitwise_and bitwise_or bitwise_xor", "Tensor")]
    + [(op, COMPLEX, COMPLEX.flip(0)) for op in ops("mul div", "Tensor") + ops("logaddexp")]
    + [
        (aten.div.Tensor_mode, x, y, {"rounding_mode": m})
        for x, y in [(SPECIAL, OTHER), MIXED[0], (INTS, DIVISORS)]
        for m in ("floor", "trunc")
    ]
    + [(aten.div.Tensor_mode, INTS, DIVISORS, {"rounding_mode": None})]
    + [(op, INTS, 2) for op in ops("bitwise_and bitwise_or bitwise_xor sub fmod", "Scalar")]
    + [(op, X, 2.5) for op in ops("add sub rsub mul div remainder fmod copysign", "Scalar")]
    + [(op, INTS, 2.5) for op in ops("add mul div remainder", "Scalar")]
    + [(aten.div.Scalar_mode, X, 0.3, {"rounding_mode": "floor"}), (aten.floor_divide.Scalar, X, 0.3)]
    + [(aten.floor_divide_.Tensor, X.clone(), Y), (aten.remainder.Scalar_Tensor, 5, DIVISORS)]
    + [(op, 6, INTS) for op in ops("bitwise_and bitwise_or bitwise_xor", "Scalar_Tensor")]
    + [(aten.xlogy.Scalar_Self, 0.0, SPECIAL), (aten.xlogy.Scalar_Other, SPECIAL, 2.0)]
    + [(aten.special_xlog1py.self_scalar, 2.0, POSITIVE), (aten.special_xlog1py.other_scalar, SPECIAL, 2.0)]
    + [(aten.ldexp.Tensor, X, torch.tensor([1, -3, 10, 0])), (aten.ldexp.Tensor, X, torch.tensor([128, -120, 127, 1]))]
    + [
        (aten.nextafter.default, x, y)
        for x, y in [(X, Y), (SPECIAL, OTHER), (X.bfloat16(), Y.bfloat16()), (X.double(), Y.double())]
    ]
    + [(aten.gcd.default, BYTES, BYTES.flip(0)), (aten.lcm.default, SMALL.int(), SMALL.flip(0).int())]
)

SHIFTS: list[Case] = [
    case
    for way in ("left", "right")
    for short in (f"__{way[0]}shift__",)
    for case in (
        (getattr(aten, f"bitwise_{way}_shift").Tensor, SMALL, torch.tensor([1, 2, 0, 7, 8, 3], dtype=torch.int8)),
        (getattr(aten, f"bitwise_{way}_shift").Tensor, BYTES, torch.tensor([1, 2, 9, 7], dtype=torch.uint8)),
        (getattr(aten, f"bitwise_{way}_shift").Tensor, INTS, torch.tensor([[1, 65, -1], [3, 2, 64]])),
        (getattr(aten, f"bitwise_{way}_shift").Tensor_Scalar, INTS, 2),
        (getattr(aten, f"bitwise_{way}_shift").Scalar_Tensor, 12, INTS.abs()),
        (getattr(aten, short).Tensor, INTS, INTS.abs()),
        (getattr(aten, short).Scalar, INTS, 2),
        (getattr(aten, short.replace("__", "__i", 1)).Tensor, INTS.clone(), INTS.abs()),
        (getattr(aten, short.replace("__", "__i", 1)).Scalar, INTS.clone(), 2),
    )
]

EXPONENTS = [0.0, 1.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 2.5, -1.5]
POWERS: list[Case] = (
    [(aten.pow.Tensor_Scalar, x, e) for x in (SPECIAL, X.bfloat16()) for e in EXPONENTS]
    + [(aten.pow.Tensor_Scalar, x, e) for x in (X.half(), X.double()) for e in (3.0, 2.5)]
    + [(aten.pow.Tensor_Scalar, x, e) for x in (INTS, SMALL) for e in (0, 3, 0.5)]
    + [(aten.pow.Tensor_Scalar, COMPLEX, 2), (aten.pow.Tensor_Scalar, COMPLEX, 1.5), (aten.pow_.Scalar, X.clone(), 2)]
    + [
        (aten.pow.Tensor_Tensor, POSITIVE, Y),
        (aten.pow.Tensor_Tensor, SPECIAL, OTHER),
        (aten.pow_.Tensor, POSITIVE.clone(), Y),
    ]
    + [
        (aten.pow.Tensor_Tensor, INTS, torch.tensor([[40, -3, 0], [0, 63, 5]])),
        (aten.pow.Tensor_Tensor, X.bfloat16(), INTS[:1, :1]),
    ]
    + [(aten.pow.Scalar, 2, INTS.abs()), (aten.pow.Scalar, 1.5, X), (aten.pow.Scalar, 2.0, SPECIAL)]
)

COMPARISONS: list[Case] = (
    [(op, x, y) for op in ops("eq ne lt le gt ge", "Tensor") for x, y in [(SPECIAL, OTHER), (INTS, DIVISORS)]]
    + [(op, x, y) for op in ops("eq le", "Tensor") for x, y in [*MIXED, (INTS, INTS.float()), (BOOLS, INTS)]]
    + [(op, x, s) for op in ops("eq ne lt le gt ge", "Scalar") for x, s in [(X, 0.5), (INTS, 3)]]
    + [(aten.ge.Scalar, x, s) for x, s in [(INTS, 2.5), (BYTES, 5), (BOOLS, True), (X.bfloat16(), 0.1)]]
    + [(aten.eq.Tensor, COMPLEX, COMPLEX), (aten.eq.Tensor, torch.tensor([2**62 + 1]), torch.tensor([2**62]))]
    + [(op, x, y) for op in ops("logical_and logical_or logical_xor") for x, y in [(BOOLS, INTS), (SPECIAL, OTHER)]]
    + [(aten.clamp.default, x, lo, hi) for x in (SPECIAL, INTS) for lo, hi in [(-1, 1), (None, 2), (0, None), (2, -2)]]
    + [
        (aten.clamp.default, INTS, -0.5, 2.5),
        (aten.clamp.default, SPECIAL, NAN, 1.0),
        (aten.clamp.default, X.double(), -0.1, 0.1),
    ]
    + [
        (aten.clamp.Tensor, X, ROW, None),
        (aten.clamp.Tensor, X, None, Y),
        (aten.clamp.Tensor, SPECIAL, OTHER, OTHER.flip(0)),
    ]
    + [
        (aten.clamp_min.default, SPECIAL, 0),
        (aten.clamp_max.default, SPECIAL, 0),
        (aten.clamp_min.Tensor, X, ROW),
        (aten.clamp_max.Tensor, X, Y),
    ]
    + [(aten.threshold.default, SPECIAL, 0.5, 20.0), (aten.threshold.default, INTS, 2, 5)]
    + [
        (aten.threshold_backward.default, OTHER, SPECIAL, 0),
        (aten.threshold_backward.default, X.bfloat16(), Y.bfloat16(), 0),
    ]
    + [
        (aten.where.self, BOOLS, INTS, INTS.float() + 0.5),
        (aten.where.self, X > 0, X, SCALAR.double()),
        (aten.where.self, X[0] > 0, X.half(), ROW.half()),
    ]
    + [
        (aten.masked_fill.Scalar, x, m, v)
        for x, m, v in [
            (X, X > 0, -INF),
            (INTS, BOOLS, 9),
            (ROW, X > 0, 2),
            (X.bfloat16(), X > 0, 0.1),
            (BOOLS, BOOLS, True),
        ]
    ]
    + [(aten.masked_fill.Tensor, X, X > 0, SCALAR), (aten.masked_fill.Tensor, X, X > 0, torch.tensor(3))]
)

TERNARY: list[Case] = (
    [
        (op, a, b, c, {"value": v})
        for op in ops("addcmul addcdiv")
        for a, b, c, v in [
            (X, Y, POSITIVE, 0.5),
            (X, ROW, ROW, 2),
            (X.bfloat16(), Y.bfloat16(), POSITIVE.bfloat16(), 0.1),
        ]
    ]
    + [(aten.addcmul.default, INTS, INTS, DIVISORS, {"value": 3})]
    + [
        (aten.lerp.Scalar, x, y, w)
        for x, y in [(X, Y), (X.double(), Y.double()), (X.bfloat16(), Y.bfloat16()), (COMPLEX, COMPLEX.flip(0))]
        for w in (0.3, 0.9)
    ]
    + [(aten.lerp.Tensor, X, Y, UNIT), (aten.lerp.Tensor, X, Y, SCALAR)]
)

CASES = UNARY + BESSEL + BINARY + SHIFTS + POWERS + COMPARISONS + TERNARY


@pytest.mark.parametrize("case", CASES, ids=label)
def test_agrees_with_cpu(case: Case) -> None:
    run(case)


@pytest.mark.parametrize("module", [elementwise, binary, comparison, special], ids=lambda m: m.__name__)
def test_every_rule_is_exercised(module: ModuleType) -> None:
    assert not unexercised(module, [case[0] for case in CASES])


def test_behaviour_of_the_field_cases() -> None:
    one, big = torch.tensor(1.0), torch.tensor(1e6)
    tenth = torch.tensor(0.1)
    assert evaluate(aten.lerp.Scalar, torch.tensor(1e8), one, 1.0) == 1.0
    assert evaluate(aten.remainder.Tensor, one, tenth) == torch.remainder(one, tenth)
    torch.testing.assert_close(evaluate(aten.remainder.Tensor, big, tenth), torch.remainder(big, tenth), rtol=0, atol=0)
    assert evaluate(aten.remainder.Scalar, torch.tensor(0.0), INF) == 0
    assert evaluate(aten.floor_divide.default, one, tenth) == 9
    assert evaluate(aten.floor_divide.default, torch.tensor(6.0), tenth) == 59
    assert evaluate(aten.floor_divide.default, torch.tensor(INF), one).isnan()


def test_the_sign_of_zero_survives() -> None:
    zeros = torch.tensor([0.0, -0.0])
    for op in ops("neg trunc round ceil floor sin tanh"):
        torch.testing.assert_close(evaluate(op, zeros).signbit(), op(zeros).signbit())
    filled = evaluate(aten.masked_fill.Scalar, zeros, torch.tensor([True, True]), -0.0)
    assert filled.signbit().all()


def test_int64_scalars_stay_exact() -> None:
    big = 2**62 + 1
    assert evaluate(aten.add.Scalar, torch.tensor([big]), 1).item() == big + 1
    assert evaluate(aten.eq.Scalar, torch.tensor([big]), big).item()
    assert not evaluate(aten.eq.Scalar, torch.tensor([big]), big - 1).item()


def test_usual_exponents_have_programs_of_their_own(device: str) -> None:
    """Without a branch, so that they fuse with what is around them; all other exponents share one program."""
    x = torch.rand(3, 5).to(device)

    def added(*exponents: float) -> int:
        before = _C.signature_count()
        for exponent in exponents:
            x.pow(exponent)
        return _C.signature_count() - before

    assert added(2.7) == 1 and added(2.8, -1.3, 17.0) == 0
    assert added(2) == 1 and added(2, 2) == 0
    torch.tpu.eager_mode, before = torch.tpu.EagerMode.DEFER_AND_FUSE, torch.tpu.eager_mode
    try:
        assert "stablehlo.case" not in str(torch.tpu.show(x.pow(2) + x.pow(1) + x.pow(-0.5), "stablehlo"))
        assert "stablehlo.case" in str(torch.tpu.show(x.pow(2.7), "stablehlo"))
    finally:
        torch.tpu.eager_mode = before
    torch.compile(lambda x: x.pow(2) + x.pow(-0.5), backend="tpu")(x)
    assert "stablehlo.case" not in torch.tpu.compiler.programs()[-1].stablehlo
    powers, exponents = torch._foreach_pow([x, x], [2.0, 2.7]), (2.0, 2.7)  # one of them comes at run time
    for power, exponent in zip(powers, exponents):
        torch.testing.assert_close(power.cpu(), x.cpu().pow(exponent), rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int32, torch.complex64])
def test_usual_exponents(dtype: torch.dtype, device: str) -> None:
    x = (SPECIAL if dtype.is_floating_point else INTS).to(dtype)
    for exponent in [e for e in binary.POWERS if dtype.is_floating_point or e >= 0]:
        numbers = [exponent, int(exponent)] if exponent == int(exponent) else [exponent]
        for number in numbers:
            expected, found = x.pow(number), x.to(device).pow(number)
            tolerance = {"rtol": 1e-6, "atol": 0} if dtype.is_complex else {"rtol": 0, "atol": 0}
            torch.testing.assert_close(found.cpu(), expected, equal_nan=True, **tolerance)
